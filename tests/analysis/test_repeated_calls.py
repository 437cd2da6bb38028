"""Which calls of a module are needless, from the rows of `module_calls`."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import profile as schema
from gpudoctor.analysis import repeated_calls

BACKWARD = [{"op": 0, "name": "gpudoctor::backward", "phase": "backward", "step": 3, "start_ns": 500, "dur_ns": 100}]


def call(number: int, **more: Any) -> dict[str, Any]:
    row = {
        "call": number,
        "step": 3,
        "file": "t.py",
        "line": 10 + number,
        "function": "f",
        "module": "Net",
        "dur_ns": 50,
    }
    row |= {"training": True, "grad": True, "graph": None, "start_ns": 100 * number, "weights": 0, "random": False}
    return row | {"repeats": 0 if number else None} | more


def found(*calls: dict[str, Any], **tables: Any) -> list[dict[str, Any]]:
    kernels = tables.get("kernels")
    made = repeated_calls.rows(
        calls,
        schema.frame("ops", tables.get("ops", BACKWARD)),
        None if kernels is None else schema.frame("kernels", kernels),
    )
    rows: list[dict[str, Any]] = made.to_dict("records")  # type: ignore[assignment]
    return rows


def lines(*calls: dict[str, Any]) -> list[tuple[int, int]]:
    return [(row["line"], row["other_line"]) for row in found(*calls)]


def test_the_call_that_backward_ran_is_needed_and_the_other_is_not() -> None:
    assert lines(call(0, graph="used"), call(1)) == [(11, 10)]
    assert lines(call(0), call(1, graph="used")) == [(10, 11)]


@pytest.mark.parametrize(
    ("second", "expected"),
    [({}, [(11, 10)]), ({"random": True}, []), ({"random": None}, []), ({"weights": 1}, [])],
)
def test_two_that_backward_ran_must_be_equal(second: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    assert lines(call(0, graph="used"), call(1, graph="used", **second)) == expected


@pytest.mark.parametrize("other", [{"training": False}, {"graph": "open"}, {"repeats": None}, {"step": None}])
def test_another_mode_an_open_graph_and_another_input_are_none(other: dict[str, Any]) -> None:
    assert lines(call(0, graph="used"), call(1, **other)) == []


def test_without_any_backward_the_first_call_is_needed() -> None:
    assert lines(call(0), call(1), call(2)) == [(11, 10), (12, 10)]
    assert lines(call(0, random=True), call(1, random=True)) == []


def test_a_metric_after_the_update_stands_in_the_next_step() -> None:
    (row,) = found(call(0, graph="used"), call(1, step=4, weights=1))
    assert (row["updated"], row["after_backward"]) == (True, True)
    assert lines(call(0), call(1, step=4, weights=1)) == []  # the same input shown at each step
    assert lines(call(0, graph="used"), call(1, step=4, weights=1, graph="used")) == []  # all data at each step


@pytest.mark.parametrize(("start_ns", "after"), [(100, False), (700, True)])
def test_whether_a_loss_of_the_step_can_use_it(start_ns: int, after: bool) -> None:
    (row,) = found(call(0, graph="used"), call(1, start_ns=start_ns))
    assert row["after_backward"] is after


def test_on_a_gpu_the_kernels_of_the_call_count() -> None:
    ops = [*BACKWARD, {"op": 7, "name": "aten::mm", "step": 3, "start_ns": 120, "phase": "forward"}]
    kernels = [{"kernel": 0, "op": 7, "dur_ns": 900}, {"kernel": 1, "op": 0, "dur_ns": 5}]
    (row,) = found(call(0, graph="used"), call(1), ops=ops, kernels=kernels)
    assert row["dur_ns"] == 900


def test_no_calls_no_rows() -> None:
    assert found(ops=[]) == []
