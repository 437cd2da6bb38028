"""What operators cost: calls of one operator with the same inputs from one place, with the kernels they launched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.analysis.frames import Rows
from gpudoctor.analysis.intervals import Ints
from gpudoctor.analysis.work import Work
from gpudoctor.columns import Coded
from gpudoctor.profile import from_columns

TEXT_KEYS = ("name", "op_class", "shapes", "dtypes", "phase", "module", "file")


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None, work: Work) -> pd.DataFrame:
    """The table `op_costs`, dearest first.

    Args:
        ops: the table `ops`.
        kernels: the table `kernels`; None when no device was watched: then nothing is said of devices.
        work: what each call had to do.
    """
    group, first = _groups(ops)
    costs = {"self_ns": np.maximum(frames.integers(ops, "self_ns"), 0)}
    if kernels is not None:
        costs["device_ns"], costs["kernels"] = launched(ops, kernels)
    sums = {name: _sums(group, column, len(first)) for name, column in costs.items()}
    order = np.lexsort((-sums["self_ns"], -sums.get("device_ns", sums["self_ns"])))
    values: dict[str, Any] = {key: frames.pick_texts(ops, key, first[order]) for key in TEXT_KEYS}
    values["line"] = frames.integers(ops, "line")[first[order]]
    values["calls"] = np.bincount(group, minlength=len(first))[order]
    values |= {name: column[order] for name, column in sums.items()}
    # a cell that is not known makes its group's unknown: part of a sum would look like the whole
    for name, column in (("flops", work.flops), ("bytes", work.bytes)):
        values[name] = np.bincount(group, weights=column, minlength=len(first))[order]
    return from_columns("op_costs", values)


def launched(ops: pd.DataFrame, kernels: pd.DataFrame) -> tuple[Ints, Ints]:
    """Time of the device activities that each operator launched itself, in nanoseconds, and their number."""
    at = frames.rows_of(frames.integers(ops, "op"), frames.integers(kernels, "op"))
    known = at >= 0
    time = np.maximum(frames.integers(kernels, "dur_ns")[known], 0)
    return _sums(at[known], time, len(ops)), np.bincount(at[known], minlength=len(ops))


def _sums(group: Rows, values: Ints, count: int) -> Ints:
    """Sums by group, exact as long as a group's sum stays below 2^53 (104 days in nanoseconds)."""
    return np.bincount(group, weights=values, minlength=count).astype(np.int64)


def _groups(ops: pd.DataFrame) -> tuple[Rows, Rows]:
    """Number of the group of each operator, and the first operator of each group."""
    line = pd.factorize(frames.integers(ops, "line"))
    keys = [*(frames.texts(ops, key) for key in TEXT_KEYS), Coded(line[0].astype(np.int32), [""] * len(line[1]))]
    number = np.zeros(len(ops), np.int64)
    for key in keys:
        joined = number * (len(key.values) + 1) + key.codes + 1
        number = pd.factorize(joined)[0].astype(np.int64)
    return number, np.unique(number, return_index=True)[1]
