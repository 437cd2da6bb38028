"""What each operator call had to compute and move, and in which dtype: formulas on all calls at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudoctor.analysis import flops, frames
from gpudoctor.columns import Coded

_KEYS = ("name", "shapes", "dtypes", "arguments")


@dataclass(slots=True)
class Work:
    """One cell a call; NaN where it is not known, and where another call owns the cost.

    Attributes:
        owns: the call's cost counts: a formula knows it, and it calls nothing that does the same work.
        flops: floating point operations of matrix work.
        bytes: least bytes to move.
        dtype: dtype of its products as the inputs say; fp32 ones may run as tf32.
    """

    owns: NDArray[np.bool_]
    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    dtype: Coded


def of_calls(ops: pd.DataFrame) -> Work:
    """The work of the calls in the table `ops`."""
    owns = flops.owners(ops).to_numpy(bool)
    made = Work(owns, np.full(len(ops), np.nan), np.full(len(ops), np.nan), Coded(np.full(len(ops), -1, np.int16), ()))
    rows = np.flatnonzero(owns)
    keys = [frames.texts(ops, key) for key in _KEYS]
    if not len(rows):
        return made
    unique, at = np.unique(np.stack([key.codes[rows] for key in keys]), axis=1, return_inverse=True)
    costs = [_cost(*(_text(key, code) for key, code in zip(keys, codes, strict=True))) for codes in unique.T.tolist()]
    at = at.reshape(-1)
    made.flops[rows] = np.array([_number(cost.flops) for cost in costs])[at]
    made.bytes[rows] = np.array([_number(cost.bytes_min) for cost in costs])[at]
    dtypes = list(dict.fromkeys(cost.matrix_dtype for cost in costs if cost.matrix_dtype is not None))
    numbers = np.array([-1 if c.matrix_dtype is None else dtypes.index(c.matrix_dtype) for c in costs], np.int16)
    made.dtype.codes[rows] = numbers[at]
    return Work(made.owns, made.flops, made.bytes, Coded(made.dtype.codes, dtypes))


def _text(key: Coded, code: int) -> str | None:
    return key.values[code] if code >= 0 else None


def _cost(name: str | None, shapes: str | None, dtypes: str | None, arguments: str | None) -> flops.Cost:
    concrete = json.loads(arguments) if arguments else None
    found = flops.cost(name or "", shapes, dtypes, concrete if isinstance(concrete, list) else None)
    if found is None:
        return flops.Cost(None, None, None)
    return found if flops.kind(name or "") == "matrix" else flops.Cost(None, found.bytes_min, None)


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)
