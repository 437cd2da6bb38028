from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.analysis import loop_lines
from gpudoctor.profile import frame

SOURCE = """
def forward(x):
    for t in range(x.shape[1]):
        y = x[:, t]
        y = y * 2
"""


class Step:
    """Operators of one step, each a microsecond after the one before."""

    def __init__(self, **common: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self.common = common

    def call(self, name: str, line: int | None = 4, parent: int | None = None, **more: Any) -> int:
        row = {
            "op": len(self.rows),
            "name": name,
            "line": line,
            "parent": parent,
            "step": 3,
            "thread": 1,
            "start_ns": 1_000 * len(self.rows),
            "dur_ns": 900,
            "self_ns": 900,
            "observation": "detail",
            "phase": "forward",
            "op_class": "pointwise" if name == "aten::mul" else "other",
            "file": "t.py" if line else None,
            "precision": "call",
        }
        self.rows.append(row | self.common | more)
        return len(self.rows) - 1

    def select(self, number: int, **more: Any) -> None:
        self.call("aten::select", shapes="[[16,20,8],[],[]]", arguments=json.dumps(["", "1", str(number)]), **more)

    def lines(self) -> list[dict[str, Any]]:
        return loop_lines.rows(frame("ops", self.rows), None, None, {"t.py": SOURCE})


def test_a_loop_over_time_steps_walks_along_its_tensor() -> None:
    step = Step()
    for number in range(20):
        step.select(number)
        step.call("aten::mul", 5)
    first, second = step.lines()
    assert (first["line"], second["line"]) == (4, 5)
    assert (first["loop"], first["loop_line"], first["head"]) == (0, 3, "for t in range(x.shape[1])")
    assert (first["pieces"], first["iterations"], first["along"]) == (20, 20, "dimension 1 of a [16, 20, 8] tensor")
    assert (second["operators"], second["forward_ns"], second["median_op_ns"]) == (20, 18_000, 900)


def test_what_passes_between_two_calls_of_a_loop_is_the_loops() -> None:
    step = Step()
    step.call("aten::add", 2)
    for number in range(20):
        step.select(number)
        if number == 10:
            step.call("aten::neg", 9)  # its time is not the loop's, the pauses around it are
        step.call("aten::mul", 5)
    step.call("aten::add", 2)
    first, second = step.lines()
    assert (first["between_ns"], second["between_ns"]) == (19 * 100, 21 * 100)


def test_iterating_over_a_tensor_walks_along_it_when_the_loop_runs_as_often() -> None:
    step = Step()
    pieces = step.call("aten::unbind", 3, shapes="[[20,8],[]]", arguments='["","0"]')
    for _ in range(20):
        step.call("aten::select", 3, parent=pieces)
    for _ in range(20):
        step.call("aten::mul", 5)
    (row,) = step.lines()
    assert (row["pieces"], row["along"]) == (20, "dimension 0 of a [20, 8] tensor")


def test_pieces_that_are_stacked_again_make_no_loop() -> None:
    step = Step()
    pieces = step.call("aten::unbind", 3, shapes="[[20,8],[]]", arguments='["","0"]')
    for _ in range(20):
        step.call("aten::select", 3, parent=pieces)
    for _ in range(11):
        step.call("aten::mul", 5)
    (row,) = step.lines()
    assert row["pieces"] is None


def test_the_same_piece_again_and_again_is_no_walk() -> None:
    step = Step()
    for _ in range(20):
        step.select(0)
        step.call("aten::mul", 5)
    assert {row["pieces"] for row in step.lines()} == {None}


def test_layers_have_modules_of_their_own_and_are_no_loop() -> None:
    step = Step(module="Block")
    for number in range(20):
        step.select(number, module_path=f"layers.{number}")
        step.call("aten::mul", 5, module_path=f"layers.{number}")
    assert step.lines() == []


def test_calls_of_modules_that_are_not_known_apart_are_no_loop() -> None:
    step = Step(module="Block")
    for number in range(20):
        step.select(number)
        step.call("aten::mul", 5)
    assert step.lines() == []


def test_micro_batches_with_a_backward_call_each_are_no_loop() -> None:
    step = Step()
    for number in range(20):
        step.select(number)
        step.call("aten::mul", 5)
        step.call("gpudoctor::backward", None, phase="backward")
    assert step.lines() == []


def test_operators_inside_of_an_operator_are_not_the_users_loop() -> None:
    step = Step()
    whole = step.call("aten::gru", 4)
    for number in range(20):
        step.select(number, parent=whole)
        step.call("aten::mul", 5, parent=whole)
    assert step.lines() == []


def test_compiled_code_samples_of_a_dataset_and_updates_of_an_optimizer_are_no_loop() -> None:
    for common in ({"region": "0/0"}, {"phase": "input"}, {"phase": "optimizer"}):
        step = Step(**common)
        for number in range(20):
            step.select(number)
            step.call("aten::mul", 5)
        assert step.lines() == []


def test_the_backward_of_an_operator_counts_for_its_line() -> None:
    step = Step()
    products = []
    for number in range(20):
        step.select(number)
        products.append(step.call("aten::mul", 5))
    name = "autograd::engine::evaluate_function: MulBackward0"
    for product in products:
        step.call(name, None, phase="backward", forward_op=product, dur_ns=3_000)
    assert [row["backward_ns"] for row in step.lines()] == [0, 60_000]


def test_what_passes_between_two_backward_nodes_of_a_loop_is_the_loops() -> None:
    step = Step()
    products = []
    for number in range(20):
        step.select(number)
        products.append(step.call("aten::mul", 5))
    name = "autograd::engine::evaluate_function: MulBackward0"
    for product in products:
        step.call(name, None, phase="backward", thread=2, forward_op=product, dur_ns=700)
    assert [row["between_ns"] for row in step.lines()] == [19 * 100, 20 * 100 + 19 * 300]


def test_kernels_and_the_waits_for_them_count_for_the_line_of_their_operator() -> None:
    step = Step()
    products = []
    for number in range(20):
        step.select(number)
        products.append(step.call("aten::mul", 5))
    kernels = frame("kernels", [{"kernel": op, "kind": "kernel", "op": op, "dur_ns": 2_000} for op in products])
    gaps = frame("gaps", [{"gap": 0, "op": products[3], "owner": "launch", "dur_ns": 7_000}])
    made = loop_lines.rows(frame("ops", step.rows), kernels, gaps, {})
    assert [(row["kernels"], row["kernel_ns"], row["idle_ns"]) for row in made] == [(0, 0, 0), (20, 40_000, 7_000)]
    assert "head" not in made[0]


def test_nothing_to_see_has_no_rows() -> None:
    assert Step().lines() == []
    step = Step()
    step.call("aten::mul", 5)
    assert step.lines() == []
    assert not loop_lines.measured(frame("ops", [{**step.rows[0], "precision": "def"}]))
    assert loop_lines.measured(frame("ops", step.rows))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "work_ns"),
    [
        ("[[16,8],[16,8]]", "float,float", 16 * 8 * 4 * 3 / loop_lines.SLOW_BYTES_PER_NS),
        (None, None, 900),  # sizes are not known: all of its time may be work
    ],
)
def test_work_is_told_by_sizes_not_by_the_time_that_calls_take(shapes: Any, dtypes: Any, work_ns: float) -> None:
    step = Step()
    for number in range(20):
        step.select(number)
        step.call("aten::mul", 5, shapes=shapes, dtypes=dtypes)
    assert {row["median_work_ns"] for row in step.lines()} == {int(work_ns)}
