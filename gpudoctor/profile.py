"""The Profile: one run's facts as tables.

Times are integer nanoseconds from the recording's own zero, `_ns` in a name is always nanoseconds. Ids are row numbers.
Any table may be empty. A cell that a source cannot give is null, never zero. A table that no instrument filled is
*absent* (`Profile.measured` is false for it), which is not the same as empty: an empty table was looked for and had
nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpudoctor.columns import Columns, Tables
from gpudoctor.columns import frame as frame_of
from gpudoctor.errors import GpuDoctorError
from gpudoctor.schema import SCHEMA_VERSION, TABLES, Column, Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "Column",
    "Profile",
    "Table",
    "columns",
    "empty",
    "frame",
    "from_columns",
    "tables",
]


def empty(name: str) -> pd.DataFrame:
    """An empty table with the declared columns and dtypes."""
    return frame(name, [])


def frame(name: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Builds a table from row mappings; missing keys become null.

    Args:
        name: one of `TABLES`.
        rows: mappings from column name to value.

    Returns:
        A frame with exactly the declared columns, in order, with nullable dtypes.

    Raises:
        GpuDoctorError: a row has a column that the table does not declare.
    """
    rows = list(rows)
    table = _declared(name)
    unknown = {key for row in rows for key in row} - set(table.names)
    if unknown:
        raise GpuDoctorError(f"table {name!r} has no column {sorted(unknown)[0]!r}; it has {', '.join(table.names)}")
    return columns(name, {column: [row.get(column) for row in rows] for column in table.names})


def columns(name: str, values: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Builds a table from columns (sequences of equal length); columns left out become null."""
    import pandas as pd

    table = _declared(name)
    length = max((len(v) for v in values.values()), default=0)
    nothing: Sequence[Any] = [None] * length
    made = pd.DataFrame({c.name: list(values.get(c.name, nothing)) for c in table.columns}, dtype=object)
    return made.astype({c.name: c.dtype for c in table.columns})


def from_columns(name: str, given: Columns) -> pd.DataFrame:
    """Builds a large table from arrays without touching single cells; columns left out are null.

    Raises:
        GpuDoctorError: a column is given that the table does not declare.
    """
    table = _declared(name)
    unknown = set(given) - set(table.names)
    if unknown:
        raise GpuDoctorError(f"table {name!r} has no column {sorted(unknown)[0]!r}; it has {', '.join(table.names)}")
    return frame_of({column.name: column.kind for column in table.columns}, given)


def tables(frames: Mapping[str, pd.DataFrame], arrays: Mapping[str, Columns]) -> Tables:
    """Frames that are there, and others that are made from arrays when they are asked for."""
    return Tables(frames, from_columns, arrays)


def _declared(name: str) -> Table:
    try:
        return TABLES[name]
    except KeyError:
        raise GpuDoctorError(f"no table {name!r}; the tables are {', '.join(TABLES)}") from None


@dataclass(frozen=True, slots=True)
class Profile:
    """One run's facts as tables, plus the facts that are not rows.

    Attributes:
        tables: the measured tables only; ask `table()` to get an empty one for the rest.
        facts: what the run was (script, argv, torch, device, integrity notes, …), JSON-able.
        sources: text of the user's files that the tables point at, by the path used in `file` columns.
        why_missing: for a table that was not measured, why (`how` in its declaration says how to get it).
        how_missing: how to get it where this run needs another way than the declared one; empty: there is none.
    """

    tables: Mapping[str, pd.DataFrame]
    facts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    why_missing: Mapping[str, str] = field(default_factory=dict)
    how_missing: Mapping[str, str] = field(default_factory=dict)

    def measured(self, name: str) -> bool:
        """Whether an instrument filled this table (an empty table was measured, an absent one was not)."""
        return name in self.tables

    def table(self, name: str) -> pd.DataFrame:
        """The table, empty when it was not measured."""
        return self.tables[name] if name in self.tables else empty(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The table's rows as mappings, None for null; empty when it was not measured. For small tables."""
        table = self.table(name).astype(object)
        records: list[dict[str, Any]] = table.where(table.notna(), None).to_dict("records")  # type: ignore[assignment]
        return records

    def sql(self, query: str) -> pd.DataFrame:
        """The answer to one SELECT over the tables, with nullable types.

        Tables that were not measured are there and empty; ask `measured()`.

        Raises:
            UsageError: the query is refused (it may read the tables and nothing else), fails, or takes too long.
        """
        from gpudoctor.query import ask

        return ask(self, query).frame()

    def why_not(self, name: str) -> tuple[str, str]:
        """Why a table was not measured and how to get it, two sentences; the second is empty when nothing would."""
        declared = _declared(name)
        reason = self.why_missing.get(name, f"this run has no table {name!r} ({declared.row})")
        return reason, self.how_missing.get(name, declared.how)
