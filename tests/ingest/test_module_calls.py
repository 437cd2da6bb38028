"""What became of the graph of a module's call, from what the recorder wrote."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.ingest.module_calls import add, rows
from gpudoctor.ingest.watch import Backward, Batch, EpochEnd, OptimizerStep, WatchLog


def call(start_ns: int, **changes: Any) -> dict[str, Any]:
    return {
        **{"file": "train.py", "line": 9, "function": "f", "module": "Net", "training": True, "seen": "profiled"},
        **{"start_ns": start_ns, "dur_ns": 10, "nodes": 5, "saved_bytes": None, "weights": 0, "grad": True},
        **{"repeats": None, "random": False, "outputs": 1, "used": 0, "inside": False, "freed": 0},
        **changes,
    }


def log() -> WatchLog:
    """Two steps: backward at 100 and 300, the optimizer at 150 and 350."""
    return WatchLog(
        optimizer_steps=[OptimizerStep(150, 160, 1, False), OptimizerStep(350, 360, 1, False)],
        backwards=[Backward(100, 120), Backward(300, 320)],
    )


STEPS = [{"step": 1, "observation": "detail", "start_ns": 160, "dur_ns": 200}]


@pytest.mark.parametrize(
    ("changes", "ended", "graph"),
    [
        ({"outputs": 0, "nodes": 0}, True, None),
        ({"used": 1, "inside": True}, False, "used"),
        ({"outputs": 3, "used": 1}, False, "partly"),
        ({"inside": True}, False, "partly"),
        ({"freed": 1}, False, "unused"),
        ({}, True, "unused"),
        ({}, False, "open"),
    ],
)
def test_what_became_of_a_graph(changes: dict[str, Any], ended: bool, graph: str | None) -> None:
    (row,) = rows([call(340, **changes)], log(), STEPS, ended)
    assert row["graph"] == graph


def test_a_graph_that_is_left_over_when_training_went_on_is_unused() -> None:
    (row,) = rows([call(200)], log(), STEPS, False)
    assert (row["graph"], row["step"]) == ("unused", 1)


def test_calls_before_training_are_left_out_unless_backward_used_them() -> None:
    made = rows([call(10, freed=1), call(50, used=1)], log(), STEPS, True)
    assert [row["call"] for row in made] == [1]


def test_a_call_outside_of_the_profiled_steps_has_no_step() -> None:
    (row,) = rows([call(500, seen="evaluation")], log(), STEPS, True)
    assert row["step"] is None


def test_a_batch_that_training_went_on_with_is_no_validation() -> None:
    watched = log()
    watched.batches = [Batch(50, 60, 0, 0, 0, 1, None, None), Batch(400, 410, 1, 0, 0, 1, None, None)]
    watched.epoch_ends = [EpochEnd(430, 431, 1, 0)]
    made = rows([call(200, seen="validation"), call(415, seen="validation", freed=1)], watched, STEPS, True)
    assert [row["call"] for row in made] == [1]


@pytest.mark.parametrize(("start_ns", "weights", "updated"), [(210, 0, False), (365, 0, True), (210, 7, True)])
def test_a_repeated_call_says_whether_the_weights_are_the_same(start_ns: int, weights: int, updated: bool) -> None:
    first, second = rows([call(200), call(start_ns, repeats=0, weights=weights)], log(), STEPS, True)
    assert second["repeats"] == first["call"]
    assert (first["weights"] != second["weights"]) is updated


def test_a_run_without_backward_is_not_judged() -> None:
    tables: dict[str, Any] = {}
    missing: dict[str, str] = {}
    add([call(10)], WatchLog(), [], None, tables, missing)
    assert not tables
    assert "never called backward" in missing["module_calls"]


def test_calls_that_could_not_be_watched_are_not_measured() -> None:
    tables: dict[str, Any] = {}
    missing: dict[str, str] = {}
    add({"failed": "RuntimeError('inside')"}, log(), STEPS, None, tables, missing)
    assert not tables
    assert "could not watch" in missing["module_calls"]
    assert "inside" not in missing["module_calls"]
