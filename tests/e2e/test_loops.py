"""Steps are found in the loops people write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import Checked

HEAD = "import torch, torch.nn as nn\ntorch.manual_seed(0)\n"
LOOPS = {
    "accumulation": (
        "net = nn.Linear(8, 1); opt = torch.optim.AdamW(net.parameters())\n"
        "for i in range(60):\n    (net(torch.randn(4, 8)).square().mean() / 4).backward()\n"
        "    if i % 4 == 3: opt.step(); opt.zero_grad()\n",
        15,
        "optimizer",
    ),
    "gan": (
        "G, D = nn.Linear(8, 16), nn.Linear(16, 1)\n"
        "og, od = torch.optim.Adam(G.parameters()), torch.optim.SGD(D.parameters(), lr=0.1)\n"
        "for i in range(20):\n    for _ in range(2):\n        od.zero_grad(); D(G(torch.randn(4, 8)).detach()).mean().backward(); od.step()\n"
        "    og.zero_grad(); D(G(torch.randn(4, 8))).mean().backward(); og.step()\n",
        20,
        "optimizer",
    ),
    "lbfgs": (
        "net = nn.Linear(8, 1); opt = torch.optim.LBFGS(net.parameters(), max_iter=3); x = torch.randn(16, 8)\n"
        "def closure():\n    opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); return loss\n"
        "for i in range(15): opt.step(closure)\n",
        15,
        "optimizer",
    ),
    "skipping scaler": (
        "net = nn.Linear(8, 1); opt = torch.optim.AdamW(net.parameters()); sc = torch.amp.GradScaler('cpu', init_scale=8.0)\n"
        "for i in range(20):\n    loss = net(torch.randn(4, 8)).square().mean() * (float('inf') if i in (0, 9) else 1)\n"
        "    opt.zero_grad(); sc.scale(loss).backward(); sc.step(opt); sc.update()\n",
        20,
        "optimizer",
    ),
    "optimizer in backward": (
        "net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1))\n"
        "opts = {p: torch.optim.SGD([p], lr=0.01) for p in net.parameters()}\n"
        "def hook(p): opts[p].step(); opts[p].zero_grad()\n"
        "for p in net.parameters(): p.register_post_accumulate_grad_hook(hook)\n"
        "for i in range(20): net(torch.randn(4, 8)).square().mean().backward()\n",
        20,
        "optimizer",
    ),
    "manual updates": (
        "w = torch.randn(8, 1, requires_grad=True)\n"
        "for i in range(20):\n    (g,) = torch.autograd.grad((torch.randn(4, 8) @ w).square().mean(), [w])\n"
        "    with torch.no_grad(): w -= 0.01 * g\n",
        20,
        "backward",
    ),
    "inference": (
        "from torch.utils.data import DataLoader, TensorDataset\nnet = nn.Linear(8, 1).eval()\n"
        "with torch.inference_mode():\n    for (x,) in DataLoader(TensorDataset(torch.randn(200, 8)), batch_size=8): net(x)\n",
        24,
        "dataloader",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_steps(name: str, check: Callable[..., Checked]) -> None:
    code, steps, source = LOOPS[name]
    run = check(HEAD + code)
    assert run.code == 0, run.err
    facts = run.diagnosis["run"]
    assert (facts["steps"], facts["step_source"]) == (steps, source)
    assert facts["profiled_step_ns"] is not None
    seen = {time["observation"] for time in run.diagnosis["step_times"]}
    assert {"bare", "detail", "light"} <= seen


def test_the_line_is_exact_for_operators_methods_and_conversions(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def helper(value):
    return float(value)
for i in range(15):
    loss = net(torch.randn(4, 8)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if loss > 1e9:
        break
    mask = torch.randn(8) > 0
    kept = mask[mask]
    total = [
        helper(loss),
        loss.item(),
    ]
    text = f"{loss:.3f}"
"""
    run = check(code)
    assert sorted(finding["where"]["line"] for finding in run.findings("GD301")) == [5, 11, 14, 17, 19]
    assert {finding["where"]["precision"] for finding in run.findings("GD301")} == {"call"}


def test_a_recompile_in_an_optimizer_of_the_users_own_points_at_the_call(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
@torch.compile(backend="aot_eager")
def nudge(p, g, buf):
    buf.mul_(0.9).add_(g)
    p.sub_(buf * 0.1)
class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            buf = self.state[p].setdefault("buf", torch.zeros_like(p))
            nudge(p, p.grad, buf)
widths = [8, 9, 10, 11, 12, 13, 1]
net = nn.Sequential(*[nn.Linear(a, b, bias=False) for a, b in zip(widths, widths[1:])])
opt = Own(net.parameters())
for i in range(12):
    opt.zero_grad()
    net(torch.randn(4, 8)).square().mean().backward()
    opt.step()
"""
    run = check(code)
    (finding,) = run.findings("GD102")
    assert 13 in [place["line"] for place in (finding["where"], *finding["locations"])]
    assert run.findings("GD505") == []  # zeros_like fills a new buffer, it zeroes no gradient


def test_ranks_that_are_not_recorded_make_the_run_inconclusive(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn, torch.multiprocessing as mp
def work(rank):
    net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(4):
        opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()
if __name__ == "__main__":
    mp.spawn(work, nprocs=1)
"""
    run = check(code)
    assert run.code == 4
    assert run.diagnosis["run"]["steps"] == 0


def test_what_is_read_every_tenth_step_is_not_a_finding(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
net = nn.Linear(8, 1); opt = torch.optim.Adam(net.parameters())
for i in range(40):
    loss = net(torch.randn(4, 8)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if i % 10 == 2:
        print(loss.item())
"""
    assert check(code).findings("GD301") == []
