"""SQL over a Profile's tables for people: what `gpudoctor query` and `Profile.sql` share.

The query runs in the sandbox that rules run in: one SELECT, no files, no network, bounded time and memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpudoctor.config import suggestion
from gpudoctor.engine.guard import check_sql, tables_named
from gpudoctor.engine.sandbox import RuleLimitError, Sandbox
from gpudoctor.errors import RuleError, UsageError
from gpudoctor.profile import TABLES, Profile, Table

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 1_000_000
"""Longest answer: more is a job for the Parquet files of a recording's `profile/`."""

TIMEOUT_S = 60.0
"""Longest run of a query: somebody waits for it."""

_WHERE = "query"
_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave.

    Attributes:
        columns: names in order.
        rows: values in the order of `columns`: int, float, str, bool, None, list and dict.
        unmeasured: tables it read that were not measured and so are empty, each with the reason and how to get it.
    """

    columns: list[str]
    rows: list[list[Any]]
    unmeasured: dict[str, str]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows as mappings."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def frame(self) -> pd.DataFrame:
        """The rows as a table with nullable types, so that a null among integers does not make floats of them."""
        import pandas as pd

        columns = [list(column) for column in zip(*self.rows, strict=True)] or [[] for _ in self.columns]
        made = {number: pd.Series(values, dtype=_dtype(values)) for number, values in enumerate(columns)}
        frame = pd.DataFrame(made)
        frame.columns = pd.Index(self.columns)
        return frame


def ask(profile: Profile, sql: str) -> Answer:
    """Runs one SELECT over the tables of a profile.

    Raises:
        UsageError: the query is refused, fails, or runs out of its limits; one line that says what to change.
    """
    named = tables_named(sql)
    tables = tuple(sorted(known_table(name).name for name in named))
    try:
        if parameters := sorted(check_sql(sql, tables, _WHERE)):
            raise UsageError(f"{_WHERE}: the SQL uses ${parameters[0]}; write the value itself")
        columns, rows = Sandbox(profile, timeout_s=TIMEOUT_S, max_rows=MAX_ROWS).select(sql, tables, {}, _WHERE)
    except RuleLimitError as error:
        raise UsageError(str(error)) from None
    except RuleError as error:
        raise UsageError(_one_line(str(error), tables)) from None
    return Answer(columns, rows, {name: _why(profile, name) for name in tables if not profile.measured(name)})


def known_table(name: str) -> Table:
    """The declaration of a table, in any case of letters.

    Raises:
        UsageError: there is no such table.
    """
    if name.lower() not in TABLES:
        hint = suggestion(name, TABLES) or f"; the tables are {', '.join(TABLES)}"
        raise UsageError(f"there is no table {name!r}{hint}")
    return TABLES[name.lower()]


def overview(profile: Profile) -> list[dict[str, Any]]:
    """Every table: its rows (null when it was not measured), what a row is, and why it was not measured."""
    return [
        {
            "table": name,
            "rows": len(profile.table(name)) if profile.measured(name) else None,
            "row": declared.row,
            "not_measured": None if profile.measured(name) else _why(profile, name),
        }
        for name, declared in TABLES.items()
    ]


def _why(profile: Profile, name: str) -> str:
    return "; ".join(filter(None, profile.why_not(name)))


def _one_line(text: str, tables: tuple[str, ...]) -> str:
    """An error of DuckDB's without its excerpt of the SQL, with names that are near a wrong column's."""
    if found := _NO_COLUMN.search(text):
        known = {column: name for name in tables for column in TABLES[name].names}
        within = f" in {', '.join(tables)}" if tables else ""
        hint = suggestion(found[1], known) or (f"; the columns are {', '.join(known)}" if known else "")
        return f"{_WHERE}: there is no column {found[1]!r}{within}{hint}"
    return text.partition("\n")[0].rstrip(": ")


def _dtype(values: list[Any]) -> str:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return "Int64"
    if kinds and kinds <= {int, float}:
        return "Float64"
    return "string" if kinds == {str} else "object"
