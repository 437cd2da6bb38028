"""Counting what stays alive: it keeps nothing alive itself, runs nothing of the user's, and knows graphs by step."""

from __future__ import annotations

import gc
import itertools
import json
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from gpudoctor.recorder import free_memory, graph_walk
from gpudoctor.recorder.graph_walk import GraphWalk
from gpudoctor.recorder.growth import GrowthWatch
from gpudoctor.userfiles import UserFiles

BATCH_BYTES = 16 * 64 * 4
COUNTED = (3, 6, 9, 14)


class Loop:
    """A loop of steps, with a count behind some of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[Any] = []
        self.watch = GrowthWatch(UserFiles(str(Path(__file__).parent)), lambda *row: self.rows.append(row), lambda: 0)

    def run(self, step: Callable[[int], object]) -> None:
        for number in range(COUNTED[-1] + 1):
            step(number)
            self.watch.step_ended(number, number * 10_000_000)
            if number in COUNTED:
                self.watch.count(number, sys._getframe(1))

    def found(self, counted: tuple[int, ...] = COUNTED) -> list[dict[str, Any]]:
        """What grew at the last count."""
        self.watch.save(self.folder)
        saved = json.loads((self.folder / "growth.json").read_text(encoding="utf-8"))
        assert saved["failed"] is None
        assert [count["step"] for count in saved["counts"]] == list(counted)
        found: list[dict[str, Any]] = saved["counts"][-1]["found"]
        return found


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


def batch() -> torch.Tensor:
    return torch.ones(16, 64)


def test_a_sum_keeps_the_graphs_of_all_steps(loop: Loop) -> None:
    net, sums = nn.Linear(64, 64), {"total": torch.zeros(())}

    def step(number: int) -> None:
        sums["total"] = sums["total"] + net(batch()).square().sum()

    loop.run(step)
    (row,) = loop.found()
    assert (row["name"], row["container"]) == ("sums", "dict")
    assert (row["from_step"], row["to_step"], row["made_in"]) == (4, 11, 8)
    assert row["saved_bytes"] == 8 * 2 * BATCH_BYTES  # the input of the layer, and the output for the square
    assert row["node_bytes"] == 800 * row["nodes"] > 0


def test_the_graph_behind_a_loss_that_was_back_propagated_has_nothing_saved(loop: Loop) -> None:
    net, losses = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))), list[torch.Tensor]()

    def step(number: int) -> None:
        losses.append(net(batch()).square().sum())
        losses[-1].backward()

    loop.run(step)
    (row,) = loop.found()
    assert (row["name"], row["saved_bytes"]) == ("losses", 0)
    assert row["nodes"] >= 8 * 5


def test_what_is_let_go_is_no_growth_and_is_not_kept_by_being_counted(loop: Loop) -> None:
    net = nn.Linear(64, 64)
    seen: list[weakref.ref[Any]] = []

    def step(number: int) -> None:
        out = net(batch())
        seen.append(weakref.ref(out))
        out.sum().backward()

    loop.run(step)
    assert loop.found() == []
    assert [ref() for ref in seen] == [None] * len(seen)


def test_a_window_that_moves_on_is_no_growth(loop: Loop) -> None:
    kept: list[torch.Tensor] = []

    def step(number: int) -> None:
        kept.append(batch())
        del kept[:-4]

    loop.run(step)
    assert loop.found() == []


def test_state_that_is_made_once_is_no_growth(loop: Loop) -> None:
    state: dict[int, torch.Tensor] = {}
    loop.run(lambda number: state.setdefault(min(number, 5), batch()))
    assert loop.found() == []


def test_graphs_of_an_earlier_time_do_not_count(loop: Loop) -> None:
    earlier = (torch.ones(3, requires_grad=True) * 2).exp()
    kept: list[torch.Tensor] = []
    loop.run(lambda number: kept.append(batch()))
    (row,) = loop.found()
    assert (row["nodes"], row["tensors"]) == (0, row["to_step"] - row["from_step"] + 1)
    assert earlier.requires_grad


def test_views_of_data_that_was_there_cost_nothing(loop: Loop) -> None:
    data, kept = torch.zeros(40, 64), list[torch.Tensor]()
    loop.run(lambda number: kept.append(data[number]))
    assert loop.found() == []


def test_a_view_keeps_all_that_it_is_a_view_of(loop: Loop) -> None:
    kept: list[torch.Tensor] = []
    loop.run(lambda number: kept.append(batch()[0, 0]))
    (row,) = loop.found()
    assert (row["tensor_bytes"], row["used_bytes"]) == (row["tensors"] * BATCH_BYTES, row["tensors"] * 4)


def test_a_tensor_that_is_made_longer_in_each_step(loop: Loop) -> None:
    counted = (*COUNTED, 18)

    def script() -> None:
        seen = torch.zeros(0, 64)
        for number in range(counted[-1] + 1):
            seen = torch.cat([seen, batch()])
            loop.watch.step_ended(number, number)
            if number in counted:
                loop.watch.count(number, sys._getframe())

    script()
    (row,) = loop.found(counted)
    assert (row["name"], row["container"], row["tensors"]) == ("seen", None, 0)
    assert row["tensor_bytes"] == (row["to_step"] - row["from_step"] + 1) * BATCH_BYTES


def test_a_deque_with_a_length_and_a_list_with_free_places_are_bounded(loop: Loop) -> None:
    from collections import deque

    ring, slots = deque[torch.Tensor](maxlen=100), [None] * 100

    def step(number: int) -> None:
        ring.append(batch())
        slots[number] = batch()  # type: ignore[call-overload]

    loop.run(step)
    assert {(row["name"], row["bounded"]) for row in loop.found()} == {("ring", True), ("slots", True)}


def test_nothing_that_is_saved_under_a_hook_is_unpacked(loop: Loop) -> None:
    unpacked: list[Any] = []
    kept: list[torch.Tensor] = []
    weight = torch.ones(64, requires_grad=True)

    def step(number: int) -> None:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: (unpacked.append(t), t)[1]):
            kept.append((weight * batch()).sum())

    loop.run(step)
    assert unpacked == []


def test_a_checkpoint_is_not_computed_again(loop: Loop) -> None:
    runs: list[int] = []
    weight, kept = torch.ones(64, requires_grad=True), list[torch.Tensor]()

    def block(x: torch.Tensor) -> torch.Tensor:
        runs.append(0)
        return (x * weight).exp()

    loop.run(lambda number: kept.append(checkpoint(block, batch(), use_reentrant=False).sum()))  # type: ignore[union-attr]
    assert len(runs) == COUNTED[-1] + 1


def test_nothing_of_the_users_classes_runs(loop: Loop) -> None:
    class Proxy:
        def __init__(self) -> None:
            self.kept: list[torch.Tensor] = []

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        @property
        def __class__(self) -> Any:
            raise AssertionError("class")

        def __eq__(self, other: object) -> bool:
            raise AssertionError("eq")

        __hash__ = None  # type: ignore[assignment]

    box = [Proxy()]
    loop.run(lambda number: box[0].kept.append(batch()))
    (row,) = loop.found()
    assert (row["owner"] or "").endswith("Proxy") or row["name"] == "box"


def test_a_torch_function_mode_of_the_scripts_is_not_asked(loop: Loop) -> None:
    asked: list[Any] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            return func(*args, **(kwargs or {}))

    kept = [batch() for _ in range(COUNTED[-1])]
    with Mode():
        loop.watch.step_ended(0, 0)
        loop.watch.count(0, sys._getframe())
    assert kept
    assert asked == []


def test_random_numbers_gradients_and_the_collector_stay_as_they_are(loop: Loop) -> None:
    state = torch.get_rng_state()
    kept: list[torch.Tensor] = []
    loop.run(lambda number: kept.append(batch()))
    assert torch.equal(torch.get_rng_state(), state)
    assert gc.isenabled()
    gc.disable()
    try:
        loop.watch.count(20, None)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_mapping_of_local_variables_that_the_script_keeps_does_not_change(loop: Loop) -> None:
    def script() -> tuple[dict[str, Any], list[str]]:
        config = locals()
        names = list(config)
        kept: list[torch.Tensor] = []
        loop.run(lambda number: kept.append(batch()))
        return config, names

    config, names = script()
    assert list(config) == names


def test_local_variables_are_let_go_when_the_function_lets_them_go(loop: Loop) -> None:
    kept: list[torch.Tensor] = []
    large = batch()
    gone = weakref.ref(large)
    loop.run(lambda number: kept.append(batch()))
    assert loop.found()
    del large
    assert gone() is None


def test_a_count_that_fails_says_so(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tensor: Any) -> Any:
        raise ValueError("broken")

    kept = batch()
    monkeypatch.setattr("gpudoctor.recorder.growth.memory_of", broken)
    loop.watch.step_ended(0, 0)
    loop.watch.count(0, None)
    loop.watch.save(tmp_path)
    assert "broken" in json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))["failed"]
    assert not loop.watch.due(10, 10**9, disturbed=True)
    assert kept.numel()


def test_counts_lie_where_a_burst_ended_or_further_and_further_apart(loop: Loop) -> None:
    watch = loop.watch
    due: list[int] = []
    for number in range(120):
        watch.step_ended(number, number)
        if watch.due(number, 10**12, disturbed=number in (4, 5, 9)):
            watch.count(number, None)
            due.append(number)
    assert due[:2] == [4, 7]
    gaps = [after - before for before, after in itertools.pairwise(due)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 20


def test_a_graph_with_too_many_nodes_is_followed_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_walk, "MAX_NODES", 10)
    value = torch.ones(3, requires_grad=True) * 1
    for _ in range(30):
        value = value.exp()
    kept = GraphWalk(0, 0).from_node(value.grad_fn)
    numbers = sorted(kept.nodes)
    assert len(numbers) < 30
    assert numbers[-1] - numbers[0] == len(numbers) - 1
    assert kept.since == numbers[0]


def test_a_containers_limit_bounds_what_is_free(tmp_path: Path) -> None:
    machine = free_memory.host(tmp_path)
    for name, text in {"max": "5000000", "current": "4000000", "stat": "anon 1\ninactive_file 500000\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text, encoding="ascii")
    assert free_memory.host(tmp_path) == 1_500_000
    (tmp_path / "memory.max").write_text("max", encoding="ascii")
    assert machine is None or abs((free_memory.host(tmp_path) or 0) - machine) < 2**31
