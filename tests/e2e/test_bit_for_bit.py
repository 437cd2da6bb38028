"""Losses, random state, saved files and compile counts of eight kinds of training equal the bare run's bit for bit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import environment, gpudoctor

HEAD = """
import hashlib, random, sys
import numpy as np, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); random.seed(0); np.random.seed(0)
losses = []
def end(*modules):
    from torch._dynamo.utils import counters
    torch.save([m.state_dict() for m in modules], "final.pt")
    digest = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for m in modules for t in m.state_dict().values()))
    print("END", digest.hexdigest(), [l.hex() for l in losses[-3:]], torch.rand(1).item().hex(), random.random().hex(),
          float(np.random.rand()).hex(), dict(counters["frames"]), dict(counters["stats"]),
          sum(counters["graph_break"].values()), len(counters["unimplemented"]))
"""
NET = "net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))\n"
LOOP = """
for epoch in range(2):
    for (x,) in loader:
        opt.zero_grad(); loss = {model}(x).square().mean(); loss.backward(); opt.step(); losses.append(loss.item())
end(net)
"""
DATA = "loader = DataLoader(TensorDataset(torch.randn(160, 16)), batch_size=8, shuffle=True{})\n"

SCRIPTS = {
    "dropout and shuffling": HEAD
    + NET
    + DATA.format("")
    + "opt = torch.optim.AdamW(net.parameters())\n"
    + LOOP.format(model="net"),
    "loader workers": HEAD
    + NET
    + DATA.format(", num_workers=2")
    + "opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\n"
    + LOOP.format(model="net"),
    "grad scaler with skips": HEAD
    + NET
    + """
opt = torch.optim.AdamW(net.parameters()); scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=5)
for i in range(25):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.randn(8, 16)).square().mean() * (float("inf") if i in (3, 11) else 1)
    opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update(); losses.append(loss.item())
losses.append(scaler.get_scale())
end(net)
""",
    "compiled model": HEAD
    + NET
    + DATA.format("")
    + """
opt = torch.optim.Adam(net.parameters()); model = torch.compile(net, backend="aot_eager")
"""
    + LOOP.format(model="model"),
    "compiled with a graph break and a recompile": HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(16, 32); self.b = nn.Linear(32, 1); self.drop = nn.Dropout(0.1)
    def forward(self, x):
        h = self.drop(self.a(x).relu())
        if h.sum() > 0:
            h = h * 2
        return self.b(h)
net = Net(); opt = torch.optim.Adam(net.parameters()); model = torch.compile(net, backend="aot_eager")
for i in range(24):
    opt.zero_grad(); loss = model(torch.randn(8 if i % 5 else 1, 16)).square().mean(); loss.backward(); opt.step()
    losses.append(loss.item())
end(net)
""",
    "compiled whole step": HEAD
    + NET
    + """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
@torch.compile(backend="aot_eager")
def step(x):
    opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); opt.step(); return loss
for i in range(16): losses.append(step(torch.randn(8, 16)).item())
end(net)
""",
    "gan with an own autograd function": HEAD
    + """
class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g.clamp(-1, 1)
G, D = nn.Linear(8, 16), nn.Linear(16, 1)
og, od = torch.optim.Adam(G.parameters()), torch.optim.SGD(D.parameters(), lr=0.1)
for i in range(20):
    for _ in range(2):
        od.zero_grad(); loss = Clip.apply(D(G(torch.randn(4, 8)).detach())).mean(); loss.backward(); od.step()
    og.zero_grad(); loss = D(G(torch.randn(4, 8))).mean(); loss.backward(); og.step(); losses.append(loss.item())
end(G, D)
""",
    "batch norm, clipping, scheduler, ema, checkpointing": HEAD
    + """
import copy
from torch.utils.checkpoint import checkpoint
body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()); head = nn.Linear(32, 1)
ema = copy.deepcopy(head).requires_grad_(False)
params = [*body.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, lr=1e-2); sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=24)
for i in range(24):
    loss = head(checkpoint(body, torch.randn(8, 16), use_reentrant=i % 2 == 0)).square().mean()
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(params, 1.0); opt.step(); sched.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), head.parameters()): a.lerp_(b, 0.1)
    losses.append(loss.item())
end(body, head, ema)
""",
}


LOGGED_INSIDE = {"compiled whole step"}
"""Here torch builds its log records while Dynamo looks at every frame, and counts the helper frames it then skips (torch's
own TORCH_TRACE adds four times as many). Graphs, captured calls and breaks are compared all the same."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_recorded_equals_bare(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    recorded = gpudoctor("check", "--run-to-end", "--output-format", "json", "train.py", cwd=tmp_path)
    assert recorded.code == 0, recorded.err
    assert recorded.diagnosis["run"]["profiled_step_ns"] is not None
    saved = (tmp_path / "final.pt").read_bytes()
    bare = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    (expected,) = [line for line in bare.stdout.splitlines() if line.startswith("END")]
    (found,) = [line for line in recorded.err.splitlines() if line.startswith("END")]
    if name in LOGGED_INSIDE:
        found, expected = (re.sub(r"\{'total[^}]*\}", "", line) for line in (found, expected))
    assert found == expected
    assert saved == (tmp_path / "final.pt").read_bytes()
