"""FLOPs and bytes of operators, from what a trace records of their arguments.

`cost` tells what one call must compute and move; `owners` which calls of a nest it counts for, so that nothing counts
twice. The formulas stand in `costs`, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.analysis.costs import attention, gathers, lists, matrix, pointwise, reductions
from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula
from gpudoctor.analysis.costs.lists import list_dtype_of_kernel
from gpudoctor.analysis.costs.operands import parse

__all__ = ["Cost", "cost", "kind", "list_dtype_of_kernel", "matrix_dtype_used", "owners"]

_FORMULAS: dict[str, tuple[str, Formula]] = {
    **pointwise.FORMULAS,
    **reductions.FORMULAS,
    **gathers.FORMULAS,
    **lists.FORMULAS,
    **{name: ("matrix", formula) for name, formula in (matrix.FORMULAS | attention.FORMULAS).items()},
}

_TF32 = re.compile(r"tf32|xf32|tensorop_s1688(?!.*(?:f16|bf16))", re.IGNORECASE)
"""cuBLAS, cuDNN and CUTLASS kernels on TF32 say so (`…_tf32f32_…`), or name the Tensor Core instruction: 16×8×8 with
32-bit accumulation is that of TF32 on compute capability 8 and later (PTX ISA, mma.m16n8k8)."""

_DTYPE_NOT_IN_NAME = re.compile(r"nvjet|triton|cutlass3x|device_kernel", re.IGNORECASE)
"""Kernels whose names do not tell FP32 from TF32."""


def kind(name: str) -> str | None:
    """What an operator is to `owners`: matrix, pointwise, normalisation, …; None when no formula knows it."""
    found = _FORMULAS.get(name.removeprefix("aten::")) if name.startswith("aten::") else None
    return found[0] if found else None


def cost(
    name: str,
    shapes: str | Sequence[Any] | None,
    dtypes: str | Sequence[str] | None,
    concrete: Sequence[str] | None = None,
    list_dtype: str | None = None,
) -> Cost | None:
    """What one operator call must compute and move.

    Args:
        name: the operator, e.g. `aten::addmm`.
        shapes: Kineto's `Input Dims`, a list or its JSON text; None when not recorded.
        dtypes: Kineto's `Input type`, a list or its text with commas; None when not recorded.
        concrete: Kineto's `Concrete Inputs` (strides, flags, …); None when not recorded.
        list_dtype: element type of tensor lists (foreach, fused optimizers, cat), which Kineto does not record:
            `list_dtype_of_kernel` of the kernels that it launched.

    Returns:
        The cost, with None in it for what the recording does not tell; None for an operator that no formula knows.
    """
    if kind(name) is None:
        return None
    family, formula = _FORMULAS[name.removeprefix("aten::")]
    operands = parse(shapes, dtypes, concrete, list_dtype)
    made = formula(operands) if operands is not None else NOT_RECORDED
    return made if family == "matrix" else replace(made, flops=0)


def owners(ops: pd.DataFrame) -> pd.Series[bool]:
    """Which calls their cost counts for.

    An operator of PyTorch often does its work by calling others: `aten::linear` calls `aten::addmm`, `aten::mean` calls
    `aten::sum`. The innermost known call of a kind owns the cost: a call does when a formula knows it and nothing of
    the same kind is called below it. Other kinds below it are its helpers and count on their own (a copy inside a
    matrix product, the sum of a bias gradient inside a convolution's backward): they move those bytes in addition.

    Args:
        ops: columns `op`, `parent` and `name` of the table `ops`.

    Returns:
        True for owners, by the index of `ops`.
    """
    names = frames.texts(ops, "name")
    kinds = [kind(text) for text in names.values]
    numbers = {known: number for number, known in enumerate(dict.fromkeys(k for k in kinds if k is not None))}
    by_name = np.array([-1 if known is None else numbers[known] for known in kinds] or [-1], np.int16)
    own = np.where(names.codes >= 0, by_name[names.codes], -1)
    parent = frames.rows_of(frames.integers(ops, "op"), frames.integers(ops, "parent"))
    calls_its_kind = np.zeros(len(ops), bool)
    asking = np.flatnonzero(own >= 0)
    caller = parent[asking]
    while len(asking):
        inside = caller >= 0
        asking, caller = asking[inside], caller[inside]
        same = own[caller] == own[asking]
        calls_its_kind[caller[same]] = True  # what is above this caller, it marks itself
        asking, caller = asking[~same], parent[caller[~same]]
    return pd.Series((own >= 0) & ~calls_its_kind, index=ops.index, dtype=bool)


def matrix_dtype_used(matrix_dtype: str | None, kernels: Iterable[str]) -> str | None:
    """The dtype in which FP32 products ran: fp32, or tf32 as PyTorch lets cuBLAS and cuDNN do when asked.

    Args:
        matrix_dtype: `Cost.matrix_dtype`.
        kernels: names of the kernels that the operator launched.

    Returns:
        "tf32" or "fp32" for FP32 products; None when no name tells. Other dtypes as they are.
    """
    if matrix_dtype != "fp32":
        return matrix_dtype
    names = list(kernels)
    if any(_TF32.search(name) for name in names):
        return "tf32"
    return None if not names or any(_DTYPE_NOT_IN_NAME.search(name) for name in names) else "fp32"
