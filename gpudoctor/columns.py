"""Tables as columns of numpy arrays, and the pandas frames made of them when somebody asks.

Reading a trace of a gigabyte makes millions of rows: as arrays, with each text kept once, they take a tenth of what
rows of Python objects take. pandas is imported only when a frame is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["int", "float", "str", "bool"]
Array = np.ndarray[Any, np.dtype[Any]]

MISSING = np.iinfo(np.int64).min
"""Stands for null in a column of integers."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A text column by dictionary: `values[codes[row]]`, null where the code is negative."""

    codes: Array
    values: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Array) -> Coded:
        """The rows that an index array or a mask picks."""
        return Coded(self.codes[rows], self.values)


Columns = Mapping[str, Array | Coded]
"""Columns of equal length by name: integers (`MISSING` is null), floats (NaN is null), booleans (as int8, -1 is null),
texts."""


def coded(rows: Array, values: Sequence[str | None]) -> Coded:
    """Texts by their number in a list that may have None in it; negative numbers are null."""
    absent = np.array([value is None for value in values] or [True], bool)
    codes = np.where((rows < 0) | absent[rows], -1, rows)
    return Coded(codes.astype(small(len(values))), [value or "" for value in values])


def small(count: int) -> np.dtype[Any]:
    """The smallest type for codes of `count` texts, and -1."""
    return np.min_scalar_type(-max(count, 1))


def of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Array | Coded]:
    """Columns of a few rows; every row has the keys of the first. Whole numbers, booleans and texts only."""
    made: dict[str, Array | Coded] = {}
    for name in rows[0] if rows else ():
        cells = [row[name] for row in rows]
        if any(isinstance(cell, str) for cell in cells):
            made[name] = coded(np.arange(len(cells)), cells)
        elif any(isinstance(cell, bool) for cell in cells):
            made[name] = np.array([-1 if cell is None else cell for cell in cells], np.int8)
        else:
            made[name] = np.array([MISSING if cell is None else cell for cell in cells], np.int64)
    return made


def length(columns: Columns) -> int:
    """Number of rows."""
    return len(next(iter(columns.values()), ()))


def joined(parts: Sequence[Columns]) -> dict[str, Array | Coded]:
    """Columns of several parts, one below the other; each part has the same columns."""
    made: dict[str, Array | Coded] = {}
    for name in parts[0] if parts else ():
        columns = [part[name] for part in parts]
        texts = [column for column in columns if isinstance(column, Coded)]
        if texts:
            shifts = np.cumsum([0, *(len(column.values) for column in texts)])
            codes = [
                np.where(column.codes < 0, -1, column.codes.astype(np.int32) + shift).astype(np.int32)
                for column, shift in zip(texts, shifts, strict=False)
            ]
            made[name] = Coded(np.concatenate(codes), [text for column in texts for text in column.values])
        else:
            made[name] = np.concatenate([column for column in columns if isinstance(column, np.ndarray)])
    return made


def frame(kinds: Mapping[str, Kind], given: Columns) -> pd.DataFrame:
    """A frame without touching single cells.

    Args:
        kinds: the frame's columns in order; those not given are null.
        given: the columns. Texts become categories: one copy of each text, however many rows have it.
    """
    import pandas as pd

    rows = length(given)
    made = {name: _array(kind, rows, given.get(name)) for name, kind in kinds.items()}
    return pd.DataFrame(made, index=pd.RangeIndex(rows), copy=False)


_NOTHING: dict[Kind, Any] = {"int": np.int64(0), "float": np.float64(0), "bool": np.False_}


def _array(kind: Kind, rows: int, given: Array | Coded | None) -> Any:
    if kind == "str":
        return _categories(given if isinstance(given, Coded) else Coded(np.full(rows, -1, np.int8), ()))
    if given is None:  # one cell, repeated: a column of nulls costs no memory
        return _masked(kind, np.broadcast_to(_NOTHING[kind], rows), np.broadcast_to(np.True_, rows))
    assert isinstance(given, np.ndarray)
    if kind == "bool":
        unknown = given < 0 if given.dtype == np.int8 else np.broadcast_to(np.False_, rows)
        return _masked(kind, given > 0 if given.dtype == np.int8 else given, unknown)
    absent = np.isnan(given) if kind == "float" else given == MISSING
    if not absent.any():
        absent = np.broadcast_to(np.False_, rows)
    return _masked(kind, given.astype(np.float64 if kind == "float" else np.int64, copy=False), absent)


def _masked(kind: Kind, values: Array, mask: Array) -> Any:
    import pandas as pd

    made = {"int": pd.arrays.IntegerArray, "float": pd.arrays.FloatingArray, "bool": pd.arrays.BooleanArray}
    return made[kind](values, mask)


def _categories(given: Coded) -> pd.Categorical:
    """Categories in use only, texts that occur twice merged."""
    import pandas as pd

    used, codes = np.unique(given.codes, return_inverse=True)
    nulls = int((used < 0).sum())
    texts = [given.values[code] for code in used[nulls:].tolist()]
    merged = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    final = np.array([-1] * nulls + [merged[text] for text in texts], small(len(merged)))
    rows = final[codes.reshape(-1)] if len(used) else np.empty(0, np.int8)
    return pd.Categorical.from_codes(rows, categories=pd.Index(list(merged), dtype="str"))


class Tables(Mapping[str, "pd.DataFrame"]):
    """Frames by name, each made from its columns when it is first asked for.

    Args:
        frames: ready ones.
        make: makes one of a name and columns.
        columns: of the others; the mapping is emptied as frames are made.
    """

    def __init__(
        self,
        frames: Mapping[str, pd.DataFrame],
        make: Callable[[str, Columns], pd.DataFrame],
        columns: Mapping[str, Columns],
    ) -> None:
        self._frames, self._make = dict(frames), make
        self._columns = {name: given for name, given in columns.items() if name not in self._frames}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name in self._columns:
            self._frames[name] = self._make(name, self._columns[name])
            del self._columns[name]
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._frames, *self._columns])

    def __len__(self) -> int:
        return len(self._frames) + len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._frames or name in self._columns
