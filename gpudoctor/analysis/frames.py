"""Between the declared pandas tables and numpy: columns out of a table, and a table out of columns, without a Python loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudoctor.analysis.intervals import Ints, Mask
from gpudoctor.profile import TABLES

NULL = np.iinfo(np.int64).min
"""Stands for null in an integer array."""


def integers(frame: pd.DataFrame, column: str) -> Ints:
    """An integer column; `NULL` where it is null."""
    made: Ints = frame[column].to_numpy(dtype=np.int64, na_value=NULL)
    return made


def flags(frame: pd.DataFrame, column: str) -> Mask:
    """A boolean column; false where it is null."""
    made: Mask = frame[column].to_numpy(dtype=np.bool_, na_value=False)
    return made


def texts(frame: pd.DataFrame, column: str) -> tuple[NDArray[np.intp], list[str]]:
    """A text column as codes and the texts they stand for; -1 where it is null."""
    codes, found = pd.factorize(frame[column])
    return codes, [str(text) for text in found]


def classified(frame: pd.DataFrame, column: str, *wanted: str) -> Mask:
    """Rows whose text is one of those wanted."""
    codes, found = texts(frame, column)
    hit = np.array([*(text in wanted for text in found), False], np.bool_)
    return np.asarray(hit[codes], dtype=np.bool_)


def rows_of(ids: Ints, wanted: Ints) -> NDArray[np.intp]:
    """Row numbers of ids in a table; -1 for ids that it does not have."""
    if not len(ids):
        return np.full(len(wanted), -1, np.intp)
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    found = order[at]
    return np.where(ids[found] == wanted, found, -1)


def declared(name: str, values: Mapping[str, Any]) -> pd.DataFrame:
    """A declared table from arrays; columns left out are null.

    Args:
        name: one of `TABLES`.
        values: by column: an integer array with `NULL` for null, a float array with NaN for null, booleans, or texts.
    """
    table = TABLES[name]
    length = max((len(v) for v in values.values()), default=0)
    made = {column.name: _column(values.get(column.name), column.dtype, length) for column in table.columns}
    return pd.DataFrame(made)


def nullable_integers(values: Ints) -> Any:
    """An `Int64` array with null in place of `NULL`."""
    missing = values == NULL
    return pd.arrays.IntegerArray(np.where(missing, 0, values), missing)


def _column(values: Any, dtype: str, length: int) -> Any:
    if values is None:
        return (
            pd.array([None] * length, dtype=dtype)
            if length < 1
            else pd.Series([None], dtype=dtype).repeat(length).array
        )
    if dtype == "Int64":
        return nullable_integers(np.asarray(values, dtype=np.int64))
    if dtype == "Float64":
        numbers = np.asarray(values, dtype=np.float64)
        return pd.arrays.FloatingArray(np.nan_to_num(numbers), np.isnan(numbers))
    if isinstance(values, pd.Series):
        return values.astype(dtype).array
    return pd.array(values, dtype=dtype)


def spelled(codes: NDArray[Any], found: list[str]) -> Any:
    """Texts by code, null for -1."""
    words = pd.array([*found, None], dtype="string")
    return words.take(np.where(codes < 0, len(found), codes))
