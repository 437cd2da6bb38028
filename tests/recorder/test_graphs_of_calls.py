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
from gpudoctor.recorder.call_results import HELD_BYTES
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
    inside: list[Any] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is torch_private.module_call_code and not inside:
            inside.append(frame)
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


def equal(calls: ModuleCalls, folder: Path) -> list[bool | None]:
    return [row["equal"] for row in saved(calls, folder) if row["repeats"] is not None]


class Healthy(nn.Module):
    """Computes something else on the same input, each time for another reason."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4).requires_grad_(False)
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
        self.more = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
        self.head, self.noisy, self.state = "a", False, 0.0
        self.own = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> Any:
        out = self.more(self.heads[self.head](self.stem(x)))
        if self.noisy:
            out = out + torch.rand(out.shape, generator=self.own)
        return {"out": out + self.state, "list": [out]}


def _switch(model: Healthy) -> None:
    model.head = "b"


def _noise(model: Healthy) -> None:
    model.noisy = True


def _carry(model: Healthy) -> None:
    model.state += 1.0


def _climb(model: Healthy) -> None:
    model.more[3].weight.data.add_(0.1)


def _swap(model: Healthy) -> None:
    model.more[3].weight.data = torch.zeros(2, 2)


def _reset(model: Healthy) -> None:
    model.more[3].weight.data = model.more[3].weight.data.clone()


def _nothing(model: Healthy) -> None:
    return None


@pytest.mark.parametrize("change", [_switch, _noise, _carry, _climb, _swap, _reset, _nothing])
def test_only_equal_results_of_the_same_weights_are_equal(change: Any, calls: ModuleCalls, tmp_path: Path) -> None:
    model, x = Healthy(), torch.ones(3, 4)
    profiled(calls, model, x)
    change(model)
    profiled(calls, model, x)
    assert equal(calls, tmp_path) == [change is _nothing]
    assert calls.failed is None


def test_swapped_weights_of_functional_calls_differ(calls: ModuleCalls, tmp_path: Path) -> None:
    model, x = nn.Linear(4, 1), torch.ones(2, 4)
    profiled(calls, model, x)
    weights = {name: p.detach() + 1 for name, p in model.named_parameters()}

    with torch.nn.utils.stateless._reparametrize_module(model, weights):
        profiled(calls, model, x)
    assert equal(calls, tmp_path) == [False]


def test_a_result_that_is_changed_or_shared_is_not_known(calls: ModuleCalls, tmp_path: Path) -> None:
    class Static(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = torch.ones(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kept.copy_(x)

    x, changed = torch.ones(4), []
    kept = nn.Identity()
    kept.register_forward_hook(lambda *call: changed.append(call[2].clone()) or changed[-1])
    for model in (Static(), kept):
        profiled(calls, model, x)
        profiled(calls, model, x)
    changed[0].add_(1)
    assert equal(calls, tmp_path) == [None, None]


def test_results_that_are_too_large_are_let_go(calls: ModuleCalls, tmp_path: Path) -> None:
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(HELD_BYTES // 4 + 1) + x

    model, x = Wide(), torch.ones(1)
    profiled(calls, model, x)
    profiled(calls, model, x)
    assert equal(calls, tmp_path) == [None]


def test_keeping_a_result_leaves_no_operator_and_draws_nothing(calls: ModuleCalls, tmp_path: Path) -> None:
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    before = torch_private.random_position()
    with torch.profiler.profile() as session:
        profiled(calls, model, x)
        profiled(calls, model, x)
    assert "aten::detach" not in {event.name for event in session.events()}
    assert equal(calls, tmp_path) == [True]
    assert torch_private.random_position() == before


def test_inference_tensors_are_no_failure(watch: EvaluationWatch, calls: ModuleCalls, tmp_path: Path) -> None:
    with torch.inference_mode():
        model, x = nn.Linear(4, 1).eval(), torch.ones(2, 4)
        model(x)
        profiled(calls, model, x)
        profiled(calls, model, x)
    assert watch.failed is None
    assert equal(calls, tmp_path) == []


def test_each_loop_of_an_evaluation_is_watched(watch: EvaluationWatch, calls: ModuleCalls, tmp_path: Path) -> None:
    model = nn.Linear(4, 1).eval()
    with torch.no_grad():
        for _ in range(4):
            watch.arm("validation", ("t.py", 1))
            model(torch.ones(2, 4))
    for _ in range(4):
        watch.arm("validation", ("t.py", 2))
        model(torch.ones(2, 4))
    assert [row["outputs"] for row in saved(calls, tmp_path)] == [0, 0, 0, 1]


def test_a_watcher_that_gives_up_says_so(watch: EvaluationWatch, calls: ModuleCalls, tmp_path: Path) -> None:
    class Odd(nn.Linear):
        def parameters(self, recurse: bool = True) -> Any:
            raise RuntimeError("no parameters here")

    model = Odd(4, 1).eval()
    model(torch.ones(2, 4))
    assert sys.gettrace() is None
    assert watch.failed is not None
    calls.save(tmp_path)
    assert "failed" in json.loads((tmp_path / "module_calls.json").read_text())
