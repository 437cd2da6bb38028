"""Operators and findings know the nn.Module they ran in, in wrapped and compiled models too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpudoctor.ingest.recording import load
from gpudoctor.recording import open_recording
from tests.e2e.conftest import Checked

WRAPPED = """
import torch, torch.distributed as dist, torch.nn as nn
class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.lin = nn.Linear(8, 8); self.gate = nn.Sigmoid()
    def forward(self, x):
        h = self.gate(self.lin(x))
        h.mean().item()
        return h
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.head = torch.compile(nn.Sequential(nn.Tanh(), nn.Linear(8, 1)), backend="aot_eager")
    def forward(self, x):
        for block in self.blocks: x = block(x)
        return self.head(x)
dist.init_process_group("gloo", init_method="file:///" + __file__.strip("/") + ".store", rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(20):
    loss = model(torch.randn(4, 8)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.fixture(scope="module")
def run(check: Callable[..., Checked]) -> Checked:
    return check(WRAPPED)


@pytest.fixture(scope="module")
def paths(run: Checked) -> dict[str, Any]:
    """Module paths of the detail steps' operators, by name."""
    ops = load(open_recording(run.recording)).table("ops")
    ops = ops[ops["observation"] == "detail"]
    return {str(name): set(rows["module_path"].dropna()) for name, rows in ops.groupby("name")}


def test_paths_leave_wrappers_out(paths: dict[str, Any]) -> None:
    assert paths["aten::sigmoid"] == {"blocks.0.gate"}
    assert paths["aten::item"] == {"blocks.0"}


def test_compiled_operators_have_the_path_of_the_compiled_module(paths: dict[str, Any]) -> None:
    assert paths["aten::tanh"] == {"head"}


def test_backward_has_the_path_of_its_forward(paths: dict[str, Any]) -> None:
    assert paths["aten::sigmoid_backward"] == {"blocks.0.gate"}


def test_a_finding_names_the_module(run: Checked) -> None:
    (finding,) = run.findings("GD301")
    assert (finding["where"]["line"], finding["where"]["module"]) == (8, "blocks.0")
