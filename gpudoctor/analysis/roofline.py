"""The roofline: how close operators came to what the GPU could compute and move at most.

Williams, Waterman and Patterson, Roofline: An Insightful Visual Performance Model, CACM 52(4), 2009. Attained rates are
costs (flops.py) over device time; peaks are those of the data sheet (hardware.py), which a GPU at its power limit does
not reach. So a share is a lower bound of how busy the unit was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames, op_costs
from gpudoctor.analysis.work import Work
from gpudoctor.hardware import Gpu
from gpudoctor.profile import TABLES, frame

BOUND_SHARE = 0.3
"""From this share of a peak on, the peak is what bounds the operator. Nsight Compute takes a kernel to be bound by
latency when both units are below 60 % of their peak by hardware counters. Here traffic is the least possible one (reads
that miss the cache twice count once) and peaks are at the boost clock, so half of that."""

COLUMNS = {
    "name": "string",
    "shapes": "string",
    "dtypes": "string",
    "matrix_dtype": "string",
    "count": "Int64",
    "device_ns": "Int64",
    "flops": "Int64",
    "bytes": "Int64",
    "tflops": "Float64",
    "gbps": "Float64",
    "compute_share": "Float64",
    "bandwidth_share": "Float64",
    "bound": "string",
}
_GROUP = ["name", "shapes", "dtypes", "matrix_dtype"]
_SUMS = ["device_ns", "flops", "bytes"]


def rows(op_costs: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    """Attained rates and shares of the peaks, for each operator with the same shapes and dtypes.

    Args:
        op_costs: one row a call that owns its cost (`flops.owners`): `name`, `shapes`, `dtypes`, `device_ns` (time of
            the kernels that it launched), `flops`, `bytes`, and `matrix_dtype`, the dtype whose peak applies (tf32 for
            FP32 products on Tensor Cores: `flops.matrix_dtype_used`). Null for what is not known.
        gpu: the device they ran on.

    Returns:
        One row a group, most device time first: `count`, `device_ns`, `flops` and `bytes` of all its calls together;
        `tflops` (10^12 operations a second), `gbps` (10^9 bytes a second), `compute_share` of the peak of its dtype,
        `bandwidth_share` of the memory bandwidth, `bound`: compute, memory, neither (both below `BOUND_SHARE`), or null
        when what is not known could decide it. A share above 1 is an operator whose operands came out of the cache.
    """
    calls = op_costs.reindex(columns=[*_GROUP, *_SUMS]).astype({key: COLUMNS[key] for key in (*_GROUP, *_SUMS)})
    if calls.empty:
        return calls.reindex(columns=list(COLUMNS)).astype(COLUMNS)
    groups = calls.groupby(_GROUP, dropna=False, sort=False)
    made = groups[_SUMS].agg(_sum_of_known).astype("Int64")
    made.insert(0, "count", groups.size().astype("Int64"))
    made = made.reset_index()
    device_s = made["device_ns"].astype("Float64").where(made["device_ns"] > 0) / 1e9
    flops_per_s = made["flops"].astype("Float64") / device_s
    bytes_per_s = made["bytes"].astype("Float64") / device_s
    peaks = pd.Series([_peak(gpu, dtype) for dtype in made["matrix_dtype"]], index=made.index, dtype="Float64")
    made["tflops"] = flops_per_s / 1e12
    made["gbps"] = bytes_per_s / 1e9
    made["compute_share"] = (flops_per_s / peaks).mask((made["flops"] == 0).fillna(False) & device_s.notna(), 0.0)
    made["bandwidth_share"] = bytes_per_s / gpu.memory_bytes_per_s
    made["bound"] = [
        bound(compute, memory) for compute, memory in zip(made["compute_share"], made["bandwidth_share"], strict=True)
    ]
    ordered = made.sort_values("device_ns", ascending=False, kind="stable", ignore_index=True)
    return ordered[list(COLUMNS)].astype(COLUMNS)


def table(ops: pd.DataFrame, kernels: pd.DataFrame, work: Work, gpu: Gpu) -> pd.DataFrame:
    """The table `roofline`: matrix work that launched kernels of its own.

    Args:
        ops, kernels: the tables.
        work: what each call had to do.
        gpu: the device they ran on.
    """
    device_ns, _ = op_costs.launched(ops, kernels)
    rows_ = np.flatnonzero(work.owns & (work.dtype.codes >= 0) & (device_ns > 0))
    calls = pd.DataFrame(
        {
            **{key: ops[key].astype("string").to_numpy()[rows_] for key in ("name", "shapes", "dtypes")},
            "matrix_dtype": _ran_in(ops, kernels, work)[rows_],
            "device_ns": device_ns[rows_],
            "flops": pd.array(work.flops[rows_], "Float64").astype("Int64"),
            "bytes": pd.array(work.bytes[rows_], "Float64").astype("Int64"),
        }
    )
    found = rows(calls, gpu)
    columns = found.rename(columns={"count": "calls"})
    columns["flops_per_s"] = found["tflops"] * 1e12
    columns["bytes_per_s"] = found["gbps"] * 1e9
    made: list[dict[str, Any]] = columns[TABLES["roofline"].names].to_dict("records")  # type: ignore[assignment]
    return frame("roofline", made)


def _ran_in(ops: pd.DataFrame, kernels: pd.DataFrame, work: Work) -> np.ndarray[Any, np.dtype[np.object_]]:
    """The dtype whose peak applies to each call; FP32 products as their kernels' names say, None if they do not."""
    names = np.array([*work.dtype.values, None], object)[work.dtype.codes]
    precision = frames.texts(kernels, "precision")
    at = frames.rows_of(frames.integers(ops, "op"), frames.integers(kernels, "op"))
    said = np.full(len(ops), None, object)
    for dtype in ("fp32", "tf32"):  # one kernel on tf32 among others does the products
        codes = [code for code, text in enumerate(precision.values) if text == dtype]
        said[at[(at >= 0) & np.isin(precision.codes, codes)]] = dtype
    return np.where(names == "fp32", said, names)


def bound(compute_share: Any, bandwidth_share: Any) -> str | None:
    """What bounds an operator: compute, memory or neither; None when a share that is not known could decide it."""
    if pd.isna(compute_share) or pd.isna(bandwidth_share):
        return None
    if max(compute_share, bandwidth_share) < BOUND_SHARE:
        return "neither"
    return "compute" if compute_share >= bandwidth_share else "memory"


def why_not(gpu_name: str | None) -> str:
    """Why there is no roofline for a device that `hardware.find` does not know: a sentence for the user."""
    if not gpu_name:
        return "the recording does not name its GPU, so its peaks are not known"
    return f"the peaks of {gpu_name!r} are not known (no specification of exactly this device in gpudoctor/gpus.toml)"


def _sum_of_known(values: pd.Series[int]) -> Any:
    """The sum; null when one value is, because part of a sum would look like the whole."""
    return values.sum(skipna=False)


def _peak(gpu: Gpu, matrix_dtype: Any) -> float | None:
    return None if pd.isna(matrix_dtype) else gpu.matmul_flops(str(matrix_dtype))
