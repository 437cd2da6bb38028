"""Calls of modules: what becomes of their graphs, what these hold, and that nothing of the user's changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.evaluation import EvaluationWatch
from gpudoctor.recorder.module_calls import ModuleCalls
from gpudoctor.recorder.patches import Patches
from gpudoctor.userfiles import UserFiles


@pytest.fixture
def calls() -> ModuleCalls:
    return ModuleCalls(UserFiles(str(Path(__file__).parent)), lambda: 0)


@pytest.fixture
def patches() -> Iterator[Patches]:
    made = Patches()
    yield made
    made.undo()
    sys.settrace(None)


@pytest.fixture
def watch(calls: ModuleCalls, patches: Patches) -> EvaluationWatch:
    made = EvaluationWatch(calls, lambda: True)
    if sys.gettrace() is not None:
        pytest.skip("coverage or a debugger traces")
    made.install(patches)
    return made


def saved(calls: ModuleCalls, folder: Path) -> list[dict[str, Any]]:
    calls.save(folder)
    loaded: list[dict[str, Any]] = json.loads((folder / "module_calls.json").read_text())
    return loaded


def test_a_graph_that_is_freed_unused(watch: EvaluationWatch, calls: ModuleCalls, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh()).eval()
    out = model(torch.ones(2, 4))
    assert sys.gettrace() is None, "one call is enough"
    del out
    (row,) = saved(calls, tmp_path)
    assert (row["outputs"], row["used"], row["freed"], row["inside"]) == (1, 0, 1, False)
    assert row["nodes"] >= 2
    assert row["saved_bytes"] == 2 * 8 * 4  # the result of tanh; the input and the weights are there anyway
    assert row["function"] == "test_a_graph_that_is_freed_unused"
    assert watch.failed is None


def test_a_graph_that_backward_runs(watch: EvaluationWatch, calls: ModuleCalls, tmp_path: Path) -> None:
    model = nn.Linear(4, 1).eval()
    model(torch.ones(2, 4)).sum().backward()
    (row,) = saved(calls, tmp_path)
    assert (row["used"], row["inside"]) == (1, True)


@pytest.mark.usefixtures("watch")
def test_a_loss_on_something_inside(calls: ModuleCalls, tmp_path: Path) -> None:
    kept = []
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).eval()
    model[1].register_forward_hook(lambda *call: kept.append(call[2]))
    out = model(torch.ones(2, 4))
    kept[0].sum().backward()
    del out
    (row,) = saved(calls, tmp_path)
    assert (row["used"], row["inside"]) == (0, True)


@pytest.mark.usefixtures("watch")
def test_a_checkpointed_block_is_not_recomputed(calls: ModuleCalls, tmp_path: Path) -> None:
    class Block(nn.Module):
        runs = 0

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def body(self, x: torch.Tensor) -> torch.Tensor:
            Block.runs += 1
            return self.inner(x).tanh()

        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(self.body, x, use_reentrant=False)

    # the first checkpoint of a process imports Dynamo, which takes too many calls to be traced
    checkpoint(torch.tanh, torch.ones(2, requires_grad=True), use_reentrant=False)
    model = Block().eval()
    model(torch.ones(2, 4, requires_grad=True))
    (row,) = saved(calls, tmp_path)
    assert row["saved_bytes"] is None
    assert Block.runs == 1


@pytest.mark.usefixtures("watch")
def test_under_no_grad_there_is_no_graph(calls: ModuleCalls, tmp_path: Path) -> None:
    model = nn.Linear(4, 1).eval()
    with torch.no_grad():
        for _ in range(5):
            model(torch.ones(2, 4))
    assert sys.gettrace() is None, "three calls are enough"
    assert [row["outputs"] for row in saved(calls, tmp_path)] == [0, 0, 0]


def test_a_trace_function_of_the_scripts_own_stays(watch: EvaluationWatch, calls: ModuleCalls, tmp_path: Path) -> None:
    model = nn.Linear(4, 1)

    def own(*_: Any) -> None:
        return None

    sys.settrace(own)
    model.eval()
    model(torch.ones(2, 4))
    still = sys.gettrace()
    sys.settrace(None)
    assert still is own
    assert saved(calls, tmp_path) == []
    assert watch.failed is None


def test_outputs_in_containers_count_each(calls: ModuleCalls, watch: EvaluationWatch, tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"a": self.a(x), "more": [self.b(x)]}

    model = Two().eval()
    out = model(torch.ones(2, 4))
    out["a"].sum().backward()
    (row,) = saved(calls, tmp_path)
    assert (row["outputs"], row["used"]) == (2, 1)
    assert watch.failed is None


def profiled(calls: ModuleCalls, model: nn.Module, *inputs: torch.Tensor) -> None:
    """Calls a model as a detail step sees it."""

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is torch_private.module_call_code:
            calls.enter(frame, compare=True)
        return None

    sys.settrace(trace)
    try:
        out = model(*inputs)
    finally:
        sys.settrace(None)
    calls.leave(out, "profiled")


def test_the_very_same_input_repeats_a_call_until_it_is_changed(calls: ModuleCalls, tmp_path: Path) -> None:
    model, x = nn.Dropout(0.5), torch.ones(4)
    profiled(calls, model, x)
    profiled(calls, model, x)
    profiled(calls, model, x.clone())
    x.add_(1)
    profiled(calls, model, x)
    profiled(calls, model.eval(), x)
    calls.begin_burst()
    profiled(calls, model, x)
    rows = saved(calls, tmp_path)
    assert [row["repeats"] for row in rows] == [None, 0, None, None, 3, None]
    assert [row["random"] for row in rows] == [True, True, True, True, False, False]
