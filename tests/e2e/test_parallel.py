"""Wrappers for several devices and ranks, in real recordings: one rank with gloo shows what they do on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import Checked

DDP = """\
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(24))
        self.sometimes = nn.Linear(16, 16)

    def forward(self, x, {use}):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.sometimes(x) if use else x


with tempfile.NamedTemporaryFile() as store:
    dist.init_process_group("gloo", init_method=f"file://{{store.name}}", rank=0, world_size=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(
        Net(), find_unused_parameters={find}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(40):
        loss = model(torch.randn(8, 16), {given}).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
"""
LINE = 1 + DDP[: DDP.index("DistributedDataParallel(\n")].count("\n")


@pytest.mark.parametrize(
    ("find", "given", "found"),
    [("True", "True", True), ("True", "step % 2", False), ("False", "True", False)],
)
def test_a_search_for_unused_parameters_is_needless_only_where_all_are_used(
    find: str, given: str, found: bool, check: Callable[..., Checked]
) -> None:
    run = check(DDP.format(use="use", find=find, given=given), "--preview")
    assert run.code == 0, run.err
    lines = [finding["where"]["line"] for finding in run.findings("GD807")]
    assert lines == ([LINE] if found else [])
    assert "GD807" not in [rule["rule"] for rule in run.diagnosis["not_measured"]]
    (wrapper,) = run.profile.rows("wrappers")
    assert (wrapper["kind"], wrapper["parameters"]) == ("DistributedDataParallel", 50)


DATA_PARALLEL = """\
import torch
from torch import nn

model = nn.DataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_data_parallel_without_gpus_does_nothing_and_is_not_a_finding(check: Callable[..., Checked]) -> None:
    run = check(DATA_PARALLEL, "--preview")
    assert run.findings("GD805") == []
    (wrapper,) = run.profile.rows("wrappers")
    assert (wrapper["kind"], wrapper["line"], wrapper["devices"]) == ("DataParallel", 4, 0)
