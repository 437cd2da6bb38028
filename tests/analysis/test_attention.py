from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor.analysis import attention
from gpudoctor.profile import frame

SCORES = [2, 4, 96, 96]


class Step:
    """Operators of one step in order; those inside an operator come after it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def call(self, name: str, *shapes: list[int], parent: int | None = None, **more: Any) -> int:
        number = len(self.rows)
        row = {
            "op": number,
            "name": f"aten::{name}",
            "parent": parent,
            "step": 3,
            "thread": 1,
            "start_ns": 100 * number,
            "dur_ns": 100 if parent is None else 50,
            "observation": "detail",
            "phase": "forward",
            "file": "model.py",
            "line": 10 + number,
            "precision": "call",
            "shapes": json.dumps(list(shapes)),
            "dtypes": "float,float",
        }
        self.rows.append(row | more)
        return number

    def product(self, *shapes: list[int], name: str = "matmul") -> int:
        number = self.call(name, *shapes)
        self.call("bmm", *shapes, parent=number)
        return number

    def softmax(self, dim: str = "-1", shape: list[int] = SCORES) -> int:
        return self.call("softmax", shape, [], [], arguments=json.dumps(["", dim, ""]))

    def head(self) -> None:
        self.product([8, 96, 16], [8, 16, 96])

    def tail(self) -> None:
        self.product([8, 96, 96], [8, 96, 16])

    def found(self) -> list[dict[str, Any]]:
        return attention.rows(frame("ops", self.rows), None)


def test_a_product_a_softmax_and_a_product_are_attention() -> None:
    step = Step()
    step.head()
    step.call("div", SCORES, [])
    step.softmax()
    step.tail()
    (row,) = step.found()
    assert (row["line"], row["product_line"], row["value_line"]) == (13, 10, 14)
    assert (row["batch"], row["queries"], row["keys"], row["head_dim"]) == (8, 96, 96, 16)
    assert (row["mask"], row["dropout"], row["math_backend"], row["calls"]) == (False, False, False, 1)
    assert (row["forward_ns"], row["backward_ns"]) == (200, 0)


def test_masks_and_dropout_are_part_of_it_and_noted() -> None:
    step = Step()
    step.head()
    step.call("eq", [96, 96], [])
    step.call("masked_fill", SCORES, [96, 96], [])
    step.softmax("3")
    step.call("dropout", SCORES)
    step.tail()
    (row,) = step.found()
    assert (row["mask"], row["dropout"], row["forward_ns"]) == (True, True, 300)


def test_baddbmm_with_a_bias_gives_scores_too() -> None:
    step = Step()
    step.call("baddbmm", [8, 96, 96], [8, 96, 16], [8, 16, 96])
    step.softmax(shape=[8, 96, 96])
    step.tail()
    (row,) = step.found()
    assert (row["batch"], row["head_dim"]) == (8, 16)


def test_what_a_fused_kernel_cannot_do_rules_it_out() -> None:
    for name in ("tanh", "conv2d", "relu"):
        step = Step()
        step.head()
        step.call(name, SCORES)
        step.softmax()
        step.tail()
        assert step.found() == []


def test_weights_that_are_used_again_rule_it_out() -> None:
    step = Step()
    step.head()
    step.softmax()
    step.tail()
    step.call("mean", SCORES)
    assert step.found() == []
    between = Step()
    between.head()
    between.softmax()
    between.call("sum", SCORES)
    between.tail()
    assert between.found() == []


def test_the_next_layers_scores_are_no_second_use() -> None:
    step = Step()
    for _ in range(2):
        step.head()
        step.call("div", SCORES, [])
        step.softmax()
        step.tail()
    assert [row["line"] for row in step.found()] == [13, 19]


def test_a_softmax_over_another_dimension_or_without_products_is_none() -> None:
    step = Step()
    step.head()
    step.softmax("1")
    step.tail()
    assert step.found() == []
    classes = Step()
    classes.call("linear", [8, 96, 16], [16, 96])
    classes.softmax(shape=[8, 96, 96])
    assert classes.found() == []


def test_compiled_code_is_none() -> None:
    step = Step()
    step.head()
    step.softmax()
    step.tail()
    compiled = [row | {"region": "0/0"} for row in step.rows]
    assert attention.rows(frame("ops", compiled), None) == []


def test_the_math_backend_of_the_fused_function() -> None:
    step = Step()
    shape = [2, 4, 96, 20]
    outer = step.call("scaled_dot_product_attention", shape, shape, shape)
    math = step.call("_scaled_dot_product_attention_math", shape, shape, shape, [96, 96], parent=outer)
    inner = step.call("matmul", [2, 4, 96, 20], [2, 4, 20, 96], parent=math)
    step.call("bmm", [8, 96, 20], [8, 20, 96], parent=inner)
    kernels = frame("kernels", [{"kernel": 0, "op": inner, "dur_ns": 70}, {"kernel": 1, "op": None, "dur_ns": 9}])
    (row,) = attention.rows(frame("ops", step.rows), kernels)
    assert (row["math_backend"], row["line"], row["head_dim"], row["mask"]) == (True, 10, 20, True)
    assert row["kernel_ns"] == 70


def test_backward_counts_for_the_operator_it_belongs_to() -> None:
    step = Step()
    step.head()
    softmax = step.softmax()
    step.tail()
    step.call("x", phase="backward", dur_ns=400, forward_op=softmax)
    step.rows[-1]["name"] = "autograd::engine::evaluate_function: SoftmaxBackward0"
    assert step.found()[0]["backward_ns"] == 400


def test_without_shapes_there_is_nothing_to_find() -> None:
    step = Step()
    step.head()
    step.softmax()
    step.tail()
    assert attention.measured(frame("ops", step.rows))
    bare = frame("ops", [row | {"shapes": None} for row in step.rows])
    assert not attention.measured(bare)
    assert attention.rows(bare, None) == []


@pytest.mark.parametrize("learned", [True, False])
def test_a_bias_that_gets_a_gradient_is_told_by_the_sum_in_the_backward_of_its_addition(learned: bool) -> None:
    step = Step()
    step.head()
    bias = step.call("add", SCORES, [1, 4, 96, 96], [])
    step.softmax()
    step.tail()
    about: dict[str, Any] = {"phase": "backward", "forward_op": bias}
    node = step.call("node", **about)
    step.rows[node]["name"] = "autograd::engine::evaluate_function: AddBackward0"
    own = step.call("backward", SCORES, parent=node, **about)
    step.rows[own]["name"] = "AddBackward0"
    if learned:
        step.call("sum", SCORES, parent=node, **about)
    (row,) = step.found()
    assert (row["mask"], row["learned_bias"]) == (True, learned)


def test_scores_of_another_layer_that_are_added_may_get_a_gradient() -> None:
    step = Step()
    step.head()
    step.call("add", SCORES, SCORES, [])
    step.softmax()
    step.tail()
    (row,) = step.found()
    assert row["learned_bias"]
