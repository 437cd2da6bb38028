"""Columns of the declared pandas tables as numpy arrays, without a Python loop over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudoctor.analysis.intervals import Ints, Mask
from gpudoctor.columns import MISSING, Coded

Rows = NDArray[np.intp]
"""Row numbers; -1 for none."""


def integers(frame: pd.DataFrame, column: str) -> Ints:
    """An integer column; `MISSING` where it is null."""
    made: Ints = frame[column].to_numpy(dtype=np.int64, na_value=MISSING)
    return made


def flags(frame: pd.DataFrame, column: str) -> Mask:
    """A boolean column; false where it is null."""
    made: Mask = frame[column].to_numpy(dtype=np.bool_, na_value=False)
    return made


def texts(frame: pd.DataFrame, column: str) -> Coded:
    """A text column by dictionary."""
    series = frame[column]
    if isinstance(series.dtype, pd.CategoricalDtype):
        return Coded(np.asarray(series.cat.codes, np.int32), [str(text) for text in series.cat.categories])
    codes, found = pd.factorize(series)
    return Coded(codes.astype(np.int32), [str(text) for text in found])


def is_one_of(frame: pd.DataFrame, column: str, *wanted: str) -> Mask:
    """Rows whose text is one of those wanted."""
    coded = texts(frame, column)
    hit = np.array([*(text in wanted for text in coded.values), False], np.bool_)
    return np.asarray(hit[coded.codes], dtype=np.bool_)


def rows_of(ids: Ints, wanted: Ints) -> Rows:
    """Row numbers of ids in a table; -1 for ids that it does not have."""
    if not len(ids):
        return np.full(len(wanted), -1, np.intp)
    order = np.argsort(ids, kind="stable")
    found = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return np.where((ids[found] == wanted) & (wanted != MISSING), found, -1)


def pick(values: NDArray[Any], rows: Rows, nothing: int) -> Any:
    """The values of rows; `nothing` for row -1, also when there are no values."""
    if not len(values):
        return np.full(len(rows), nothing, values.dtype)
    return np.where(rows >= 0, values[rows], nothing)


def pick_texts(frame: pd.DataFrame, column: str, rows: Rows) -> Coded:
    """The texts of rows; null for row -1."""
    coded = texts(frame, column)
    return Coded(pick(coded.codes, rows, -1).astype(np.int32), coded.values)


def with_integers(frame: pd.DataFrame, column: str, values: Ints) -> pd.DataFrame:
    """The table with an integer column replaced; `MISSING` becomes null."""
    return frame.assign(**{column: pd.arrays.IntegerArray(np.asarray(values, np.int64), values == MISSING)})


def launched_in_steps(kernels: pd.DataFrame) -> pd.DataFrame:
    """Device activities that a profiled step launched, wherever they ran; all of them where no step did.

    A loop whose host runs ahead launches work that runs behind its step, behind the last profiled one too. Counted by
    the step that launched it, each step has all of its work. Hold it against `device_ns` of steps as well as `dur_ns`.
    """
    known = kernels["launch_step"].notna()
    return kernels[known] if known.any() else kernels
