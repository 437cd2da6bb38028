"""Rows of `host` that say what a GPU could compute at most, for rules that weigh one precision against another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpudoctor.columns import Coded, Columns
from gpudoctor.hardware import Gpu

DTYPES = ("fp32", "tf32", "bf16", "fp16")


def columns(gpus: Mapping[int, Gpu]) -> Columns:
    """One row `matmul_<dtype>_flops_per_second` a device and dtype: peak rate of matrix products, where it has one.

    A dtype that the matrix units do not take has no row, except fp32, which the ordinary cores then compute.

    Args:
        gpus: specifications by GPU index.
    """
    rows = [
        (index, number, peak)
        for index, gpu in gpus.items()
        for number, dtype in enumerate(DTYPES)
        if (peak := gpu.matmul_flops(dtype) if dtype == "fp32" else gpu.matrix_flops.get(dtype)) is not None
    ]
    return {
        "name": Coded(np.array([number for _, number, _ in rows], np.int8), [_name(dtype) for dtype in DTYPES]),
        "device": np.array([index for index, _, _ in rows], np.int64),
        "value": np.array([peak for _, _, peak in rows], np.float64),
    }


def _name(dtype: str) -> str:
    return f"matmul_{dtype}_flops_per_second"
