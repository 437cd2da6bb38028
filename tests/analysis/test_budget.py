from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpudoctor import profile as schema
from gpudoctor.analysis import budget


def op(name: str, self_ns: int, phase: str = "forward", op_class: str = "other", thread: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "self_ns": self_ns,
        "phase": phase,
        "op_class": op_class,
        "thread": thread,
        "step": 0,
        "observation": "light",
    }


STEP = {"step": 0, "dur_ns": 1000, "observation": "light", "compile_ns": 0}


def shares(ops: list[dict[str, Any]], step: dict[str, Any] | None = None) -> dict[str, int]:
    return {row["owner"]: row["dur_ns"] for row in budget.rows([step or STEP], schema.frame("ops", ops))}


def test_each_nanosecond_has_one_owner() -> None:
    found = shares(
        [
            op("aten::addmm", 300, op_class="gemm"),
            op("aten::relu", 100, op_class="pointwise"),
            op("autograd::engine::evaluate_function: ReluBackward0", 50, phase="backward"),
            op("aten::stack", 80, phase="input"),
            op("aten::add_", 120, phase="optimizer"),
            op("aten::mm", 999, op_class="gemm", thread=2) | {"self_ns": 10},
        ]
    )
    assert found == {
        "input": 80,
        "compile": 0,
        "optimizer": 120,
        "matmul": 300,
        "operators": 100,
        "framework": 50,
        "python": 350,
    }


def test_only_light_steps_have_a_budget() -> None:
    assert (
        budget.rows(
            [STEP | {"observation": "bare"}, STEP | {"observation": "detail"}], schema.frame("ops", [op("aten::mm", 1)])
        )
        == []
    )


def test_compile_time_has_its_own_owner() -> None:
    assert shares([op("aten::mm", 100, op_class="gemm")], STEP | {"compile_ns": 700})["compile"] == 700


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=8), st.integers(1, 3000), st.integers(0, 4000))
def test_the_owners_always_add_up_to_the_step(self_times: list[int], total: int, compile_ns: int) -> None:
    found = shares([op("aten::mm", ns) for ns in self_times], STEP | {"dur_ns": total, "compile_ns": compile_ns})
    assert sum(found.values()) == total
