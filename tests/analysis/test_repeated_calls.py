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
    row |= {
        "training": True,
        "grad": True,
        "graph": None,
        "start_ns": 100 * number,
        "weights": 0,
        "random": False,
        "equal": None,
    }
    return row | ({"repeats": 0, "equal": True} if number else {"repeats": None}) | more


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


@pytest.mark.parametrize("what", [{"equal": False}, {"equal": None}, {"random": True}, {"weights": 1}])
def test_a_result_that_is_not_known_to_be_the_same_is_needed(what: dict[str, Any]) -> None:
    assert lines(call(0, graph="used"), call(1, **what)) == []


def test_each_repeated_call_of_a_line_must_return_the_same() -> None:
    other = {"step": 4, "graph": "used"}
    equal = [
        call(0, graph="used"),
        call(1),
        call(7, repeats=None, equal=None, **other),
        call(8, line=11, step=4, repeats=7),
    ]
    assert len(lines(*equal)) == 2
    assert lines(*equal[:3], equal[3] | {"equal": False}) == []


def test_on_a_gpu_the_kernels_of_the_call_count() -> None:
    mm = {"name": "aten::mm", "step": 3, "phase": "forward"}
    ops = [*BACKWARD, {"op": 6, "start_ns": 20, **mm}, {"op": 7, "start_ns": 120, **mm}]
    kernels = [{"kernel": 0, "op": 7, "dur_ns": 900}, {"kernel": 1, "op": 0, "dur_ns": 5}]
    (row,) = found(call(0, graph="used"), call(1), ops=ops, kernels=kernels)
    assert row["dur_ns"] == 900


def test_no_calls_no_rows() -> None:
    assert found(ops=[]) == []
