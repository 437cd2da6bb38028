"""Steps are found in the loops people write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import Checked

TRAINING = {"forward", "backward", "optimizer"}
HEAD = "import torch, torch.nn as nn\ntorch.manual_seed(0)\n"
LOOPS = {
    "accumulation": (
        "net = nn.Linear(8, 1); opt = torch.optim.AdamW(net.parameters())\n"
        "for i in range(60):\n    (net(torch.randn(4, 8)).square().mean() / 4).backward()\n"
        "    if i % 4 == 3: opt.step(); opt.zero_grad()\n",
        15,
        "optimizer",
        TRAINING,
    ),
    "gan": (
        "G, D = nn.Linear(8, 16), nn.Linear(16, 1)\n"
        "og, od = torch.optim.Adam(G.parameters()), torch.optim.SGD(D.parameters(), lr=0.1)\n"
        "for i in range(20):\n    for _ in range(2):\n        od.zero_grad(); D(G(torch.randn(4, 8)).detach()).mean().backward(); od.step()\n"
        "    og.zero_grad(); D(G(torch.randn(4, 8))).mean().backward(); og.step()\n",
        20,
        "optimizer",
        TRAINING,
    ),
    "lbfgs": (
        "net = nn.Linear(8, 1); opt = torch.optim.LBFGS(net.parameters(), max_iter=3); x = torch.randn(16, 8)\n"
        "def closure():\n    opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); return loss\n"
        "for i in range(15): opt.step(closure)\n",
        15,
        "optimizer",
        TRAINING,
    ),
    "skipping scaler": (
        "net = nn.Linear(8, 1); opt = torch.optim.AdamW(net.parameters()); sc = torch.amp.GradScaler('cpu', init_scale=8.0)\n"
        "for i in range(20):\n    loss = net(torch.randn(4, 8)).square().mean() * (float('inf') if i in (0, 9) else 1)\n"
        "    opt.zero_grad(); sc.scale(loss).backward(); sc.step(opt); sc.update()\n",
        20,
        "optimizer",
        TRAINING,
    ),
    "optimizer in backward": (
        "net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1))\n"
        "opts = {p: torch.optim.SGD([p], lr=0.01) for p in net.parameters()}\n"
        "def hook(p): opts[p].step(); opts[p].zero_grad()\n"
        "for p in net.parameters(): p.register_post_accumulate_grad_hook(hook)\n"
        "for i in range(20): net(torch.randn(4, 8)).square().mean().backward()\n",
        20,
        "optimizer",
        TRAINING,
    ),
    "manual updates": (
        "w = torch.randn(8, 1, requires_grad=True)\n"
        "for i in range(20):\n    (g,) = torch.autograd.grad((torch.randn(4, 8) @ w).square().mean(), [w])\n"
        "    with torch.no_grad(): w -= 0.01 * g\n",
        20,
        "backward",
        TRAINING,
    ),
    "inference": (
        "from torch.utils.data import DataLoader, TensorDataset\nnet = nn.Linear(8, 1).eval()\n"
        "with torch.inference_mode():\n    for (x,) in DataLoader(TensorDataset(torch.randn(200, 8)), batch_size=8): net(x)\n",
        24,
        "dataloader",
        {"input", "forward"},
    ),
    "an optimizer that wraps another": (
        "class Lookahead(torch.optim.Optimizer):\n"
        "    def __init__(self, base):\n"
        "        self.base, self.n = base, 0; super().__init__(base.param_groups, {})\n"
        "        self.slow = [p.detach().clone() for p in base.param_groups[0]['params']]\n"
        "    @torch.no_grad()\n"
        "    def step(self):\n"
        "        self.base.step(); self.n += 1\n"
        "        if self.n % 5 == 0:\n"
        "            for slow, p in zip(self.slow, self.base.param_groups[0]['params']): p.copy_(slow.lerp_(p, 0.5))\n"
        "net = nn.Linear(8, 1); opt = Lookahead(torch.optim.SGD(net.parameters(), lr=0.1))\n"
        "for i in range(20): opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()\n",
        20,
        "optimizer",
        TRAINING,
    ),
    "two optimizer steps in one of a wrapper's": (
        "class Twice(torch.optim.Optimizer):\n"
        "    def __init__(self, params):\n"
        "        super().__init__(params, {}); self.base = torch.optim.SGD(self.param_groups, lr=0.1)\n"
        "    def step(self, closure):\n"
        "        closure(); self.base.step(); closure(); self.base.step()\n"
        "net = nn.Linear(8, 1); opt = Twice(net.parameters())\n"
        "def closure(): opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward()\n"
        "for i in range(20): opt.step(closure)\n",
        20,
        "optimizer",
        TRAINING,
    ),
    "a class of the script's own that accumulates": (
        "class Plain:\n"
        "    def __init__(self, params): self.params = list(params)\n"
        "    @torch.no_grad()\n"
        "    def step(self):\n"
        "        for p in self.params: p -= 0.1 * p.grad; p.grad = None\n"
        "net = nn.Linear(8, 1); opt = Plain(net.parameters())\n"
        "for i in range(72):\n    net(torch.randn(4, 8)).square().mean().backward()\n"
        "    if i % 4 == 3: opt.step()\n",
        18,
        "backward",
        TRAINING,
    ),
    "a compiled optimizer": (
        "net = nn.Linear(8, 1); opt = torch.optim.Adam(net.parameters())\n"
        "step = torch.compile(lambda: opt.step(), backend='aot_eager')\n"
        "for i in range(25): opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); step()\n",
        25,
        "backward",
        TRAINING,
    ),
    "a second optimizer that joins later": (
        "a, b = nn.Linear(8, 8), nn.Linear(8, 1)\n"
        "oa, ob = torch.optim.Adam(a.parameters()), torch.optim.SGD(b.parameters(), lr=0.1)\n"
        "for i in range(30):\n    oa.zero_grad(); ob.zero_grad(); b(a(torch.randn(4, 8))).square().mean().backward(); oa.step()\n"
        "    if i >= 10: ob.step()\n",
        30,
        "optimizer",
        TRAINING,
    ),
    "validation before training and after each epoch": (
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "train, val = (DataLoader(TensorDataset(torch.randn(n, 8)), batch_size=8) for n in (160, 320))\n"
        "def validate():\n    with torch.no_grad():\n        for (x,) in val: net(x)\n"
        "validate()\n"
        "for epoch in range(2):\n    for (x,) in train: opt.zero_grad(); net(x).square().mean().backward(); opt.step()\n"
        "    validate()\n",
        40,
        "optimizer",
        TRAINING | {"input"},
    ),
    "a long validation after every three steps": (
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "train, val = (DataLoader(TensorDataset(torch.randn(n, 8)), batch_size=8) for n in (24, 800))\n"
        "for epoch in range(8):\n    for (x,) in train: opt.zero_grad(); net(x).square().mean().backward(); opt.step()\n"
        "    with torch.no_grad():\n        for (x,) in val: net(x)\n",
        24,
        "optimizer",
        TRAINING | {"input"},
    ),
    "a loader that ends while gradients accumulate": (
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "loader = DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=8)\n"
        "for epoch in range(6):\n    for i, (x,) in enumerate(loader, 1):\n        net(x).square().mean().backward()\n"
        "        if i % 4 == 0 or i == len(loader): opt.step(); opt.zero_grad()\n",
        18,
        "optimizer",
        TRAINING | {"input"},
    ),
    "functional gradients": (
        "from torch.func import functional_call, grad\n"
        "net = nn.Linear(8, 1); params = {name: p.detach() for name, p in net.named_parameters()}\n"
        "loss = grad(lambda params, x: functional_call(net, params, (x,)).square().mean())\n"
        "for i in range(20):\n    g = loss(params, torch.randn(4, 8))\n    params = {name: p - 0.1 * g[name] for name, p in params.items()}\n",
        20,
        "backward",
        {"forward", "backward"},
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_steps(name: str, check: Callable[..., Checked]) -> None:
    code, steps, source, phases = LOOPS[name]
    run = check(HEAD + code, "--run-to-end")
    assert run.code == 0, run.err
    facts = run.diagnosis["run"]
    assert (facts["steps"], facts["step_source"]) == (steps, source)
    assert facts["profiled_step_ns"] is not None
    seen = {time["observation"] for time in run.diagnosis["step_times"]}
    assert {"bare", "detail", "light"} <= seen
    assert all(found - {"other"} == phases for found in run.phases()), run.phases()
    # every profiled operator belongs to a step that counts as profiled, whatever the recorder took it for
    labels = run.table("steps").set_index("step")["observation"]
    ops = run.table("ops")
    assert (ops["step"].map(labels) == ops["observation"]).all()


def test_a_loop_in_a_thread_is_watched_without_a_word_on_the_scripts_streams(check: Callable[..., Checked]) -> None:
    code = """import threading
from torch.utils.data import DataLoader, TensorDataset
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def work():
    for (x,) in DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=8):
        opt.zero_grad(); net(x).square().mean().backward(); opt.step()
thread = threading.Thread(target=work); thread.start(); thread.join()
print("done")
"""
    run = check(HEAD + code, "--run-to-end")
    assert (run.diagnosis["run"]["steps"], run.diagnosis["run"]["step_source"]) == (20, "optimizer")
    assert all(found - {"other"} == TRAINING | {"input"} for found in run.phases())
    said, report = run.err.splitlines()
    assert said == "done"
    assert report.endswith("report.html")


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


BREAKS = """import logging, torch, torch.nn as nn
log = logging.getLogger("x")
def note(i):
    log.info("layer %d", i)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.ls = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
    def forward(self, x):
        for i, l in enumerate(self.ls):
            x = l(x).relu()
            {inside}
        return x
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1); model = torch.compile(net, backend="aot_eager")
{before}
for i in range(15):
    opt.zero_grad(); model(torch.randn(4, 8)).square().mean().backward(); opt.step()
"""


def test_a_break_in_a_helper_that_makes_the_whole_model_eager_is_found(check: Callable[..., Checked]) -> None:
    run = check(BREAKS.format(inside="note(i)", before=""))
    assert [finding["where"]["line"] for finding in run.findings("GD108")] == [4]
    assert run.findings("GD101") == []


def test_a_break_in_validation_only_is_not_one_of_the_step(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(8, 8)
    def forward(self, x):
        x = self.l(x)
        if not self.training:
            print(end="")
        return x.relu()
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1); model = torch.compile(net, backend="aot_eager")
for i in range(24):
    opt.zero_grad(); model(torch.randn(4, 8)).square().mean().backward(); opt.step()
    if i == 15:
        net.eval()
        with torch.no_grad(): model(torch.randn(4, 8))
        net.train()
"""
    run = check(code)
    assert run.diagnosis["counters"]["graph_breaks"] == 1
    assert run.findings("GD101") == []


def test_two_breaks_in_a_row_are_both_found(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
net = nn.Linear(8, 8); opt = torch.optim.SGD(net.parameters(), lr=0.1)
@torch.compile(backend="aot_eager")
def forward(x):
    y = net(x)
    print(end="")
    print(end="")
    return y * 2
for i in range(15):
    opt.zero_grad(); forward(torch.randn(4, 8)).square().mean().backward(); opt.step()
"""
    assert [finding["where"]["line"] for finding in check(code).findings("GD101")] == [6, 7]


def test_batches_that_a_thread_prefetches_are_no_wait_of_the_loop(check: Callable[..., Checked]) -> None:
    code = """import queue, threading, time, torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 25
    def __getitem__(self, i): time.sleep(0.002); return torch.randn(64, 64)
ready = queue.Queue()
def fill():
    for batch in DataLoader(Slow(), batch_size=1): ready.put(batch)
threading.Thread(target=fill).start()
net = nn.Linear(64, 64); opt = torch.optim.SGD(net.parameters(), lr=0.1)
time.sleep(0.2)
for i in range(25):
    opt.zero_grad(); net(ready.get()).square().mean().backward(); opt.step()
"""
    run = check(code)
    assert run.diagnosis["run"]["steps"] == 25
    assert run.findings("GD601") == []


def test_functions_of_torch_that_pass_a_call_on_leave_the_read_with_the_user(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
ids = torch.tensor([1, 1, 2]); counts = torch.tensor([1, 2, 3])
for i in range(15):
    opt.zero_grad(); loss = net(torch.randn(4, 8)).square().mean(); loss.backward(); opt.step()
    a = torch.unique(ids)
    b = ids.unique_consecutive()
    c = torch.repeat_interleave(ids, counts)
    d = torch.repeat_interleave(ids, 2)
"""
    assert [finding["where"]["line"] for finding in check(code).findings("GD301")] == [6, 7, 8]
