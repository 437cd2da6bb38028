from __future__ import annotations

from typing import Any

from gpudoctor.analysis import update_loops
from gpudoctor.profile import frame

SOURCE = """
def update(parameters):
    for p in parameters:
        p -= rate * p.grad
"""
BUILT = {"kind": "Adam", "of_torch": True, "file": "t.py", "line": 9, "function": None, "foreach": False, "fused": None}
STEPS = [
    {"step": 1, "observation": "bare", "warmup": False, "dur_ns": 1_000, "optimizer_ns": 400},
    {"step": 3, "observation": "detail", "warmup": False, "dur_ns": 2_000, "optimizer_ns": 1_500},
]


def ops(*names: str, around: str | None = None, **common: Any) -> list[dict[str, Any]]:
    """Operators of 10 ns in a row, in the step of an optimizer."""
    rows: list[dict[str, Any]] = []
    if around:
        rows.append({"name": f"Optimizer.step#{around}.step", "start_ns": 0, "dur_ns": 10_000})
    rows += [{"name": name, "start_ns": 10 + 10 * at, "dur_ns": 10} for at, name in enumerate(names)]
    where = {"file": "t.py", "line": 4, "precision": "call", "owner": "torch.optim", "caller_function": "update"}
    seen = {"step": 3, "thread": 1, "observation": "detail", "phase": "optimizer"}
    return [{"op": at, **where, **seen, **row, **common} for at, row in enumerate(rows)]


def rows(calls: list[dict[str, Any]], *optimizers: dict[str, Any]) -> list[dict[str, Any]]:
    return update_loops.rows(frame("ops", calls), STEPS, optimizers, {"t.py": SOURCE})


def test_an_optimizer_that_was_told_to_loop_has_its_constructors_line_and_its_share_of_unprofiled_steps() -> None:
    (row,) = rows(ops(*["aten::add_"] * 30, around="Adam"), {**BUILT, "parameters": 30, "elements": 3_000})
    assert (row["optimizer"], row["line"], row["other_line"]) == ("Adam", 9, 4)
    assert (row["asked"], row["by_hand"], row["parameters"], row["mean_elements"]) == (True, False, 30, 100)
    assert (row["share"], row["operators"]) == (0.4, 30)


def test_an_optimizer_that_was_told_nothing_was_not_asked_to_loop() -> None:
    (row,) = rows(ops("aten::add_", around="Adam"), {**BUILT, "foreach": None, "parameters": 1, "elements": 1})
    assert row["asked"] is False


def test_fused_and_foreach_steps_are_no_loops() -> None:
    for name in ("aten::_fused_adam_", "aten::_foreach_add_"):
        assert rows(ops(name, "aten::add_", around="Adam"), {**BUILT, "parameters": 1, "elements": 1}) == []


def test_a_loop_of_the_users_outside_of_optimizers() -> None:
    (row,) = rows(ops(*["aten::mul", "aten::sub_"] * 20, owner="user"))
    assert (row["optimizer"], row["line"], row["other_line"]) == (None, 4, 3)
    assert (row["by_hand"], row["parameters"], row["share"]) == (True, 20, 0.2)


def test_the_step_of_an_optimizer_class_of_the_users() -> None:
    own = {**BUILT, "kind": "Lion", "of_torch": False, "foreach": None, "parameters": 20, "elements": 20}
    (row,) = rows(ops(*["aten::mul_", "aten::add_"] * 20, around="Lion", owner="user"), own)
    assert (row["optimizer"], row["line"], row["by_hand"], row["parameters"]) == ("Lion", 4, True, 20)


def test_zeros_compiled_code_and_inner_operators_are_no_update() -> None:
    assert rows(ops(*["aten::zero_"] * 20, owner="user")) == []
    assert rows(ops(*["aten::add_"] * 20, owner="user", region="0/0")) == []
    assert rows(ops(*["aten::add_"] * 20, owner="user", caller_function="zero_grad")) == []
    inner = ops("aten::linear", *["aten::add_"] * 20, owner="user")
    assert rows([row | ({"parent": 0} if row["op"] else {}) for row in inner]) == []
    assert rows([]) == []
