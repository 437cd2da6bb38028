from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import profile as schema
from gpudoctor.analysis import layouts

SIZE = "[8,16,9,9]"


def op(number: int, name: str, parent: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"op": number, "name": name, "parent": parent, "start_ns": 10 * number, "self_ns": 5, "step": 3}
    return row | {"phase": "forward", "owner": "user", "file": "t.py", "line": 4} | more


def contiguous(
    first: int, parent: int | None = None, outer: str = "aten::contiguous", **more: Any
) -> list[dict[str, Any]]:
    size = more.pop("size", SIZE)
    own = {"shapes": f"[{size},{size},[]]", "dtypes": "float,float,", **more}
    return [
        op(first, outer, parent, **more),
        op(first + 1, "aten::clone", first, **more),
        op(first + 2, "aten::copy_", first + 1, **own),
    ]


def conv(number: int, **more: Any) -> list[dict[str, Any]]:
    return [op(number, "aten::convolution", shapes=f"[{SIZE},[16,16,3,3],[]]", **more)]


def found(*rows: dict[str, Any]) -> list[tuple[int, str]]:
    made = layouts.rows(schema.frame("ops", rows), None)
    return [(row["op"], row["kind"]) for row in made.to_dict("records")]


def test_a_line_behind_the_first_convolution_that_changes_the_layout_counts() -> None:
    assert found(*conv(0), *contiguous(1), *conv(9)) == [(3, "line")]
    assert found(*conv(0), *contiguous(1, outer="aten::to"), *conv(9)) == [(3, "line")]


def test_bringing_the_input_into_the_layout_does_not() -> None:
    assert found(*contiguous(0), *conv(9)) == []


BACK = op(9, "aten::convolution_backward", phase="backward", shapes=f"[{SIZE},{SIZE},[16,16,3,3]]")


def test_an_operator_that_undoes_a_line_of_the_script_counts() -> None:
    line = [*conv(0), *contiguous(1)]
    assert found(*line, *conv(4), *contiguous(5, parent=4)) == [(3, "line"), (7, "operator")]
    assert found(*line, BACK, *contiguous(10, parent=9, phase="backward")) == [(3, "line"), (12, "operator")]


def test_on_a_cpu_the_copies_of_a_convolution_alone_do_not() -> None:
    """oneDNN copies an expanded gradient or a weight by itself: no line of the script changed a layout."""
    assert found(*conv(0), *contiguous(1, parent=0)) == []
    assert found(*conv(0), BACK, *contiguous(10, parent=9, phase="backward")) == []


def test_on_a_gpu_they_do() -> None:
    kernels = [{"kernel": 4, "kind": "kernel", "name": "copy", "op": 3, "step": 3, "dur_ns": 70}]
    made = layouts.rows(schema.frame("ops", [*conv(0), *contiguous(1, parent=0)]), schema.frame("kernels", kernels))
    assert made[["op", "kind", "dur_ns"]].values.tolist() == [[3, "operator", 70]]


def test_equal_copies_have_their_median_time() -> None:
    times = (5, 6, 900)  # the last one was interrupted
    copies = [row for n, time in enumerate(times) for row in contiguous(1 + 3 * n, self_ns=time)]
    made = layouts.rows(schema.frame("ops", [*conv(0), *copies, *conv(20)]), None)
    assert made["dur_ns"].tolist() == [6, 6, 6]


@pytest.mark.parametrize(
    "more", [{"size": "[8,16]"}, {"size": "[8,5,9,9]"}, {"owner": "torch"}, {"outer": "aten::clone"}]
)
def test_other_copies_do_not(more: dict[str, Any]) -> None:
    assert found(*conv(0), *contiguous(1, **more), *conv(9)) == []


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(…)", True),
        ("void nhwcToNchwKernel<float, float, float>(…)", True),
        ("transpose_NCHW2CNHW_V2_2D_WG_off64", True),
        ("batched_transpose_32x32_half", True),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nchw_tilesize128x128x16", False),
        ("void at::native::max_pool_forward_nchw<float, float>(…)", False),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float>(…)", False),
    ],
)
def test_conversion_kernels_of_the_libraries_are_known_by_name(name: str, there: bool) -> None:
    kernels = [{"kernel": 4, "kind": "kernel", "name": name, "op": 0, "step": 3, "dur_ns": 70}]
    made = layouts.rows(schema.frame("ops", conv(0)), schema.frame("kernels", kernels))
    assert made[["kernel", "kind", "dur_ns", "line"]].values.tolist() == ([[4, "library", 70, 4]] if there else [])


def test_no_operators_no_rows() -> None:
    assert found() == []
