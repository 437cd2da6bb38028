from __future__ import annotations

from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis import clips


def op(number: int, name: str, **more: Any) -> dict[str, Any]:
    row = {"op": number, "name": name, "start_ns": 10 * number, "thread": 1, "step": 3, "phase": "other"}
    return row | more


def clip(number: int, line: int = 7) -> list[dict[str, Any]]:
    """Two functions of one call."""
    own = {"caller_file": "torch/nn/utils/clip_grad.py", "file": "t.py", "line": line, "function": "step"}
    return [
        op(number, "aten::_foreach_norm", caller_function="_get_total_norm", **own),
        op(number + 1, "aten::_foreach_mul_", caller_function="_clip_grads_with_norm_", **own),
    ]


BACKWARD = op(0, "MmBackward0", phase="backward")


def unscale(number: int) -> dict[str, Any]:
    return op(number, clips.UNSCALE, caller_function="_unscale_grads_", caller_file="torch/amp/grad_scaler.py")


def found(*rows: dict[str, Any]) -> list[tuple[int, bool | None]]:
    made = clips.rows(schema.frame("ops", rows)).astype(object)
    return [
        (row["line"], None if row["unscaled"] is None else bool(row["unscaled"]))
        for row in made.where(made.notna(), None).to_dict("records")
    ]


def test_clipping_behind_unscale_is_in_order_and_one_call_is_one_row() -> None:
    assert found(BACKWARD, unscale(1), *clip(2)) == [(7, True)]


def test_clipping_in_front_of_the_division_is_not() -> None:
    assert found(BACKWARD, *clip(1), unscale(3)) == [(7, False)]


def test_without_a_scaler_nothing_is_said() -> None:
    assert found(BACKWARD, *clip(1)) == [(7, None)]


def test_each_backward_pass_has_its_own_order() -> None:
    second = op(10, "MmBackward0", phase="backward")
    rows = found(BACKWARD, unscale(1), *clip(2, 7), second, *clip(11, 9), unscale(14))
    assert rows == [(7, True), (9, False)]
    assert found(BACKWARD, *clip(1, 5), second, unscale(14)) == [(5, None)]


def test_a_function_of_that_name_elsewhere_is_not_torchs() -> None:
    own = {"caller_file": "mine.py", "caller_function": "clip_grad_norm_", "line": 3}
    assert found(BACKWARD, op(1, "aten::norm", **own), unscale(3)) == []
