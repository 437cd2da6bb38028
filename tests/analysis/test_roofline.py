from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from gpudoctor.analysis import roofline
from gpudoctor.hardware import Gpu, find


def h100() -> Gpu:
    """989.4 TFLOP/s in bf16, 494.7 in tf32, 66.9 in fp32; 3350 GB/s."""
    gpu = find("NVIDIA H100 80GB HBM3")
    assert gpu is not None
    return gpu


def call(**given: Any) -> dict[str, Any]:
    fields = {"name": "aten::mm", "shapes": "[[8,8],[8,8]]", "dtypes": "c10::BFloat16,c10::BFloat16"}
    return {**fields, "matrix_dtype": "bf16", "device_ns": 1000, "flops": 0, "bytes": 0, **given}


def rows(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return roofline.rows(pd.DataFrame(list(calls)), h100()).to_dict("records")


def test_a_fast_product_is_bound_by_compute() -> None:
    # half of the peak for a microsecond: 989.4e12 / 2 * 1e-6
    (row,) = rows(call(flops=494_700_000, bytes=335_000))
    assert row["tflops"] == pytest.approx(494.7)
    assert row["compute_share"] == pytest.approx(0.5)
    assert row["gbps"] == pytest.approx(335)
    assert row["bandwidth_share"] == pytest.approx(0.1)
    assert row["bound"] == "compute"


def test_an_operator_without_products_is_bound_by_memory() -> None:
    (row,) = rows(call(name="aten::add", matrix_dtype=None, bytes=2_680_000))
    assert row["compute_share"] == 0
    assert row["bandwidth_share"] == pytest.approx(0.8)
    assert row["bound"] == "memory"


def test_below_the_threshold_neither_bounds() -> None:
    (row,) = rows(call(flops=98_940_000, bytes=335_000))
    assert row["bound"] == "neither"


def test_calls_with_the_same_shapes_are_one_row_and_the_longest_comes_first() -> None:
    found = rows(
        call(shapes="[[1]]", device_ns=500),
        call(device_ns=1000, flops=200, bytes=10),
        call(device_ns=3000, flops=200, bytes=10),
    )
    assert [(row["count"], row["device_ns"], row["flops"], row["bytes"]) for row in found] == [
        (2, 4000, 400, 20),
        (1, 500, 0, 0),
    ]


def test_tf32_and_fp32_have_their_own_peaks() -> None:
    fast, slow = rows(
        call(matrix_dtype="tf32", flops=49_470_000, bytes=0, device_ns=1000),
        call(matrix_dtype="fp32", flops=6_690_000, bytes=0, device_ns=999),
    )
    assert fast["compute_share"] == pytest.approx(0.1)
    assert slow["compute_share"] == pytest.approx(0.1, rel=2e-3)


@pytest.mark.parametrize(
    "given",
    [
        {"flops": None, "bytes": 100_000},
        {"flops": 494_700_000, "bytes": None},
        {"matrix_dtype": None, "flops": 494_700_000, "bytes": 100_000},
        {"matrix_dtype": "fp4", "flops": 494_700_000, "bytes": 100_000},  # no such peak
        {"device_ns": 0, "flops": 494_700_000, "bytes": 100_000},
        {"device_ns": None, "flops": 494_700_000, "bytes": 100_000},
    ],
)
def test_what_is_not_known_decides_nothing(given: dict[str, Any]) -> None:
    (row,) = rows(call(**given))
    assert pd.isna(row["bound"])


def test_a_part_that_is_not_known_is_not_summed_as_zero() -> None:
    (row,) = rows(call(flops=10, bytes=10), call(flops=None, bytes=10))
    assert pd.isna(row["flops"])
    assert pd.isna(row["tflops"])
    assert row["bytes"] == 20


def test_nothing_and_columns_that_nobody_gave() -> None:
    empty = roofline.rows(pd.DataFrame(), h100())
    assert list(empty.columns) == list(roofline.COLUMNS)
    assert {column: str(dtype) for column, dtype in empty.dtypes.items()} == roofline.COLUMNS
    (bare,) = roofline.rows(pd.DataFrame({"name": ["aten::mm"], "device_ns": [10]}), h100()).to_dict("records")
    assert bare["count"] == 1
    assert pd.isna(bare["bound"])


def test_input_stays_as_it_was_and_types_are_the_declared_ones() -> None:
    given = pd.DataFrame([call(flops=10, bytes=10)])
    before = given.copy()
    made = roofline.rows(given, h100())
    pd.testing.assert_frame_equal(given, before)
    assert {column: str(dtype) for column, dtype in made.dtypes.items()} == roofline.COLUMNS


def test_sums_beyond_53_bits_stay_exact() -> None:
    (row,) = rows(call(flops=2**53 + 1, bytes=1), call(flops=2, bytes=1))
    assert row["flops"] == 2**53 + 3


def test_an_unknown_device_has_a_reason_instead() -> None:
    assert "'NVIDIA H100 80GB HBM3 MIG 1g.10gb'" in roofline.why_not("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    assert "does not name" in roofline.why_not("")
