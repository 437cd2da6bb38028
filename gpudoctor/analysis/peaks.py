"""Rows of `host` that say what a GPU could compute at most, for rules that weigh one precision against another."""

from __future__ import annotations

from typing import Any

from gpudoctor.hardware import Gpu

DTYPES = ("fp32", "tf32", "bf16", "fp16")


def rows(gpu: Gpu, device: int) -> list[dict[str, Any]]:
    """One row `matmul_<dtype>_flops_per_second` a dtype: peak rate of matrix products, where the GPU has one.

    A dtype that its matrix units do not take has no row, except fp32, which the ordinary cores then compute.
    """
    peaks = {dtype: gpu.matrix_flops.get(dtype) for dtype in DTYPES} | {"fp32": gpu.matmul_flops("fp32")}
    return [
        {"name": f"matmul_{dtype}_flops_per_second", "device": device, "value": peak}
        for dtype, peak in peaks.items()
        if peak is not None
    ]
