"""What operators cost: calls of one operator with the same inputs from the same place, with the kernels they launched."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames

KEYS = ["name", "op_class", "shapes", "dtypes", "phase", "module", "file", "line"]


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `op_costs`, dearest first; without `flops` and `bytes`.

    Args:
        ops: the table `ops`.
        kernels: the table `kernels`; None when no device was watched.
    """
    costs = pd.DataFrame({"self_ns": np.maximum(ops["self_ns"].fillna(0).to_numpy(np.int64), 0)})
    costs["device_ns"], costs["kernels"] = 0, 0
    if kernels is not None and len(kernels):
        at = frames.rows_of(frames.integers(ops, "op"), frames.integers(kernels, "op"))
        known = at >= 0
        time = np.maximum(frames.integers(kernels, "dur_ns")[known], 0)
        costs["device_ns"] = np.bincount(at[known], weights=time, minlength=len(ops)).round().astype(np.int64)
        costs["kernels"] = np.bincount(at[known], minlength=len(ops))
    group, first = _groups(ops)
    sums = {
        name: np.bincount(group, weights=costs[name], minlength=len(first)).round().astype(np.int64) for name in costs
    }
    order = np.lexsort((-sums["self_ns"], -sums["device_ns"]))
    values = {key: ops[key].iloc[first[order]] for key in KEYS if key != "line"}
    values["line"] = frames.integers(ops, "line")[first[order]]
    values["calls"] = np.bincount(group, minlength=len(first))[order]
    values |= {name: column[order] for name, column in sums.items()}
    if kernels is None:
        del values["device_ns"], values["kernels"]
    return frames.declared("op_costs", values)


def _groups(ops: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Number of the group of each operator, and the first operator of each group."""
    number = np.zeros(len(ops), np.int64)
    for key in KEYS:
        codes, found = pd.factorize(ops[key], use_na_sentinel=True)
        number = np.unique(number * (len(found) + 1) + codes + 1, return_inverse=True)[1]
    first = np.unique(number, return_index=True)[1]
    return number, first
