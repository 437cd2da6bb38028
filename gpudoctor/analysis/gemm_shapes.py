"""Matrix products by their sizes: what rate each reached, and whether its sizes suit the tensor cores."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames, op_costs
from gpudoctor.analysis.op_cells import OpCells, rows_named
from gpudoctor.profile import frame

FACTORS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
"""Operators that call a library's product, and the positions of the two factors among their inputs."""

MULTIPLES = {"fp16": 8, "bf16": 8, "tf32": 4, "fp8": 16, "int8": 16}
"""Elements in 16 bytes: rows that begin at multiples of it are loaded by whole vectors (NVIDIA, Matrix Multiplication
Background User's Guide, on the requirements of tensor cores)."""

_SAID = re.compile(r"_align(\d+)")  # CUTLASS kernels say which alignment they were made for


def rows(ops: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """The table `gemm_shapes`, most device time first.

    Args:
        ops: the table `ops`; products with shapes count.
        kernels: the table `kernels`.
    """
    cells = OpCells(ops)
    gemms = kernels[frames.is_one_of(kernels, "kernel_class", "gemm") & frames.is_one_of(kernels, "kind", "kernel")]
    time, _ = op_costs.launched(ops, gemms)
    main = _longest(ops, gemms)
    names, precisions = frames.texts(gemms, "name"), frames.texts(gemms, "precision")
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows_named(ops, *FACTORS).tolist():
        size = _size(cells, row)
        kernel = main.get(row)
        if size is None or kernel is None or time[row] <= 0 or precisions.codes[kernel] < 0:
            continue
        dtype, name = precisions.values[precisions.codes[kernel]], names.values[names.codes[kernel]]
        place = {key: value for key, value in cells.place(row).items() if key not in ("op", "step", "precision")}
        key = (*size, dtype, name, *place.values())
        batch, m, n, k = size
        lengths = (n, k, m) if place["phase"] == "backward" else (n, k)
        known = made.setdefault(
            key,
            {
                **place,
                "batch": batch,
                "m": m,
                "n": n,
                "k": k,
                "dtype": dtype,
                "multiple": MULTIPLES.get(dtype),
                "aligned": _aligned(dtype, name, *lengths),
                "kernel_name": name,
                "calls": 0,
                "device_ns": 0,
            },
        )
        known["calls"] += 1
        known["device_ns"] += int(time[row])
    for row in made.values():
        flops = 2 * row["batch"] * row["m"] * row["n"] * row["k"]
        row["flops_per_call"] = float(flops)
        row["flops_per_s"] = flops * row["calls"] / (row["device_ns"] / 1e9)
    return frame("gemm_shapes", sorted(made.values(), key=lambda row: -row["device_ns"]))


def _longest(ops: pd.DataFrame, gemms: pd.DataFrame) -> dict[int, int]:
    """The longest product kernel of each operator (a split sum has a second one)."""
    at = frames.rows_of(frames.integers(ops, "op"), frames.integers(gemms, "op"))
    order = np.argsort(frames.integers(gemms, "dur_ns"), kind="stable")
    return {int(at[row]): int(row) for row in order.tolist() if at[row] >= 0}


def _size(cells: OpCells, row: int) -> tuple[int, int, int, int] | None:
    """Batch, m, n and k of a product."""
    first, second = FACTORS[cells.text("name", row)]
    operands = cells.operands(row)
    if len(operands) <= second:
        return None
    left, right = operands[first], operands[second]
    if not (len(left) == len(right) >= 2 and left[-1] == right[-2]):
        return None
    batch = left[0] if len(left) == 3 else 1
    return (batch, left[-2], right[-1], left[-1]) if batch and left[-2] and right[-1] and left[-1] else None


def _aligned(dtype: str, kernel: str, *sizes: int) -> bool | None:
    """What the kernel's name says, else whether the sizes are multiples.

    In a forward pass rows of both factors and of the result are k or n long; the number of rows is free. Factors of
    gradients are transposed, so that there m counts too.
    """
    multiple = MULTIPLES.get(dtype)
    if multiple is None:
        return None
    said = _SAID.search(kernel)
    return int(said[1]) >= multiple if said else all(size % multiple == 0 for size in sizes)
