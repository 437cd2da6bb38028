from __future__ import annotations

from typing import Any

from gpudoctor.analysis import op_storms


def line(number: int, **more: Any) -> dict[str, Any]:
    common = {"loop": 0, "file": "t.py", "line": number, "head": "for _ in range(rounds)", "loop_line": 3, "sizes": 1}
    costs = {"iterations": 100, "pieces": None, "median_op_ns": 2_000, "operators": 100}
    return common | costs | {"forward_ns": 100_000 * number, "backward_ns": 0, "between_ns": 10} | more


def test_a_loop_is_one_row_at_its_dearest_line() -> None:
    (row,) = op_storms.rows([line(4), line(5)])
    assert (row["line"], row["loop_line"], row["operators"], row["total_ns"]) == (5, 3, 200, 900_000)


def test_a_walk_along_a_tensor_is_another_rules() -> None:
    assert op_storms.rows([line(4, pieces=100)]) == []


def test_loops_over_parameters_are_none() -> None:
    assert op_storms.rows([line(4, sizes=3)]) == []
    for head in ("for p in net.parameters()", "for g in grads", "for group in optimizer.param_groups"):
        assert op_storms.rows([line(4, head=head)]) == []


def test_a_loop_whose_head_is_elsewhere_counts() -> None:
    assert len(op_storms.rows([line(4, head=None, loop_line=None)])) == 1
