from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import profile as schema
from gpudoctor.analysis import gemm_shapes


def op(number: int, name: str, shapes: str, **more: Any) -> dict[str, Any]:
    return {"op": number, "name": name, "shapes": shapes, "start_ns": number, "step": 3, "phase": "forward"} | more


def kernel(number: int, operator: int, dur_ns: int, name: str = "gemm", precision: str = "bf16") -> dict[str, Any]:
    row = {"kernel": number, "kind": "kernel", "kernel_class": "gemm", "op": operator, "dur_ns": dur_ns}
    return row | {"name": name, "precision": precision}


def found(ops: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = gemm_shapes.rows(schema.frame("ops", ops), schema.frame("kernels", kernels)).to_dict(
        "records"
    )  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("name", "shapes", "size"),
    [
        ("aten::mm", "[[64,128],[128,32]]", (1, 64, 32, 128)),
        ("aten::addmm", "[[32],[64,128],[128,32],[],[]]", (1, 64, 32, 128)),
        ("aten::bmm", "[[5,64,128],[5,128,32]]", (5, 64, 32, 128)),
    ],
)
def test_the_sizes_of_a_product(name: str, shapes: str, size: tuple[int, ...]) -> None:
    (row,) = found([op(0, name, shapes)], [kernel(0, 0, 100)])
    assert (row["batch"], row["m"], row["n"], row["k"]) == size
    assert row["flops_per_call"] == 2 * size[0] * size[1] * size[2] * size[3]
    assert row["flops_per_s"] == pytest.approx(row["flops_per_call"] / 100e-9)


def test_equal_products_are_one_row_and_the_longest_kernel_names_it() -> None:
    ops = [op(0, "aten::mm", "[[64,128],[128,32]]"), op(1, "aten::mm", "[[64,128],[128,32]]")]
    kernels = [kernel(0, 0, 90), kernel(1, 0, 10, "splitKreduce_kernel"), kernel(2, 1, 100)]
    (row,) = found(ops, kernels)
    assert (row["calls"], row["device_ns"], row["kernel_name"]) == (2, 200, "gemm")


@pytest.mark.parametrize(
    ("shapes", "name", "precision", "phase", "aligned"),
    [
        ("[[788,768],[768,768]]", "xmma_gemm", "bf16", "forward", True),  # the number of rows is free
        ("[[788,768],[768,768]]", "xmma_gemm", "bf16", "backward", False),
        ("[[64,768],[768,50257]]", "xmma_gemm", "bf16", "forward", False),
        ("[[64,768],[768,50257]]", "cutlass_gemm_align8", "bf16", "forward", True),
        ("[[64,768],[768,768]]", "cutlass_gemm_align2", "bf16", "forward", False),
        ("[[64,100],[100,100]]", "xmma_gemm", "tf32", "forward", True),
    ],
)
def test_what_suits_the_tensor_cores(shapes: str, name: str, precision: str, phase: str, aligned: bool) -> None:
    (row,) = found([op(0, "aten::mm", shapes, phase=phase)], [kernel(0, 0, 9, name, precision)])
    assert row["aligned"] == aligned


def test_without_kernels_shapes_or_products_there_are_no_rows() -> None:
    assert found([op(0, "aten::mm", "[[64,128],[128,32]]")], []) == []
    assert found([op(0, "aten::mm", "[]"), op(1, "aten::mm", "[[4],[4]]")], [kernel(0, 0, 9), kernel(1, 1, 9)]) == []
    assert found([], []) == []
