"""Runs SQL (a rule's, or a query of a user's) over a profile's tables with everything else locked.

No files, no network, no settings; bounded time and memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gpudoctor.engine.guard import check_sql
from gpudoctor.engine.macros import MACROS
from gpudoctor.errors import RuleError
from gpudoctor.profile import Profile

TIMEOUT_S = 20.0
"""Longest run of one query: the built-in rules take milliseconds on a million operators."""

MEMORY_LIMIT_MB = 512
"""DuckDB's memory for one query: a million operators sorted whole take about a fifth of it."""

HEADROOM_MB = 1024
"""Further address space for what DuckDB's limit does not count, such as temporary texts."""

MAX_ROWS = 200
"""Most findings of one rule: nobody reads more, and a rule that yields more has lost its threshold."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": f"{MEMORY_LIMIT_MB}MB",
    "temp_directory": "",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
}
_NULL_BY_ZERO = "error_on_division_by_zero"
"""By default `//` and `%` by zero stop a query in DuckDB 2, and are null in DuckDB 1, as they are to be in a rule."""

_LOCKS = ("enable_external_access = false", "python_enable_replacements = false", "lock_configuration = true")


class RuleLimitError(RuleError):
    """A rule's query ran out of its time or memory, or gave too many rows."""


class Sandbox:
    """The tables of one profile, ready to be queried by rules one after the other.

    A query sees the tables that were named for it or for one before it; that it reads only its own is checked before.
    """

    def __init__(self, profile: Profile, *, timeout_s: float = TIMEOUT_S, max_rows: int = MAX_ROWS) -> None:
        self._profile = profile
        self._timeout_s = timeout_s
        self._max_rows = max_rows
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._registered: set[str] = set()

    def query(
        self, sql: str, tables: tuple[str, ...], parameters: Mapping[str, Any], where: str
    ) -> list[dict[str, Any]]:
        """Runs one SELECT.

        Args:
            sql: the query.
            tables: the tables it sees; those that were not measured are empty.
            parameters: values by name; those that the query does not name are left out.
            where: what the messages begin with, e.g. the rule's id and file.

        Returns:
            The rows as dicts of int, float, str, bool, None, list and dict. Integers are exact; what is not a finite
            number is None.

        Raises:
            RuleError: the query is refused or fails.
            RuleLimitError: it ran out of its time or memory, or gave more than `max_rows` rows.
        """
        columns, rows = self.select(sql, tables, parameters, where)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def select(
        self, sql: str, tables: tuple[str, ...], parameters: Mapping[str, Any], where: str
    ) -> tuple[list[str], list[list[Any]]]:
        """As `query`: the names of the columns, which an answer without rows has too, and the rows in their order."""
        named = check_sql(sql, tables, where)
        if missing := sorted(named - parameters.keys()):
            raise RuleError(f"{where}: the SQL uses ${missing[0]}, which [thresholds] does not declare")
        connection = self._with_tables(tables)
        with self._limits(connection, where):
            cursor = connection.execute(sql, {name: parameters[name] for name in named})
            columns = [column[0] for column in cursor.description]
            rows = cursor.fetchmany(self._max_rows + 1)
        if len(rows) > self._max_rows:
            raise RuleLimitError(f"{where}: more than {self._max_rows} rows; group or limit them in the SQL")
        if len(set(columns)) != len(columns):
            raise RuleError(f"{where}: the SQL gives two columns of the same name; give each its own with AS")
        return columns, [[_plain(v, name, where) for name, v in zip(columns, row, strict=True)] for row in rows]

    def _with_tables(self, names: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
        """The one connection, locked, with these tables in it: opening one a query would take longer than the query."""
        if self._connection is None:
            self._connection = duckdb.connect(":memory:", config=_SETTINGS)
            for name, body in MACROS.items():
                self._connection.execute(f"CREATE MACRO {name}{body}")
            with suppress(duckdb.CatalogException):  # DuckDB 1 has no such setting
                self._connection.execute(f"SET {_NULL_BY_ZERO} = false")
            for lock in _LOCKS:
                self._connection.execute(f"SET {lock}")
        for name in names:
            if name not in self._registered:
                table = pa.Table.from_pandas(self._profile.table(name), preserve_index=False)
                self._connection.register(name, table)
                self._registered.add(name)
        return self._connection

    @contextmanager
    def _limits(self, connection: duckdb.DuckDBPyConnection, where: str) -> Iterator[None]:
        timer = threading.Timer(self._timeout_s, connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            with _address_space(MEMORY_LIMIT_MB + HEADROOM_MB):
                yield
        except duckdb.InterruptException:
            raise RuleLimitError(f"{where}: the SQL was stopped after {self._timeout_s:g} s; make it cheaper") from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise RuleLimitError(
                f"{where}: the SQL needs more than {MEMORY_LIMIT_MB} MB; group or filter earlier"
            ) from None
        except RuntimeError as error:
            if "interrupted" in str(error):  # what duckdb makes of Ctrl-C
                raise KeyboardInterrupt from None
            raise
        except duckdb.Error as error:
            raise RuleError(f"{where}: the SQL fails: {str(error).strip()}") from None
        finally:
            timer.cancel()
            timer.join()


@contextmanager
def _address_space(extra_mb: int) -> Iterator[None]:
    """Bounds what the process may map beyond what it has now, where the platform lets a process do that (Linux)."""
    status = Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(status.read_text().split()[0]) * resource.getpagesize() + extra_mb * 2**20
    for bound in (soft, hard):
        if bound != resource.RLIM_INFINITY:
            limit = min(limit, bound)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _plain(value: Any, column: str, where: str) -> Any:
    """The value as plain data; types that JSON has no word for are refused."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, list | tuple):
        return [_plain(item, column, where) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item, column, where) for key, item in value.items()}
    raise RuleError(f"{where}: column {column!r} is of type {type(value).__name__}; cast it to a number or VARCHAR")
