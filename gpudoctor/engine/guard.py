"""Reads a rule's SQL before it runs and refuses what a rule has no business with.

The judgement is made on DuckDB's own syntax tree, not on the text, so quoting, comments, case and function-call
notations make no difference. Everything is a list of what is allowed: query nodes, tables, expressions, functions. What
a newer DuckDB adds is refused until it is added here. The settings in `sandbox.py` are the second wall behind this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import duckdb

from gpudoctor.config import suggestion
from gpudoctor.engine.allowed import EXPRESSIONS, FUNCTIONS, LENGTHENING, NODES, TABLE_FUNCTIONS
from gpudoctor.errors import RuleError

MAX_SQL_CHARS = 8000
"""Longest SQL text: twenty lines of 120 characters are 2,400; nested doubling of texts needs many more."""

MAX_DOUBLINGS = 24
"""Most operators that can make a value longer (`||`, replace, …), so that a text cannot be doubled without end."""

_AMBIENT = re.compile(r"current_\w+|local(time|timestamp)|session_user|user", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z_]\w*")


def check_sql(sql: str, tables: Collection[str], where: str) -> frozenset[str]:
    """Refuses SQL that is not one plain SELECT over the given tables.

    Args:
        sql: the rule's query.
        tables: the tables it may read.
        where: what the messages begin with, e.g. the rule's id and file.

    Returns:
        The names of its parameters.

    Raises:
        RuleError: with the reason.
    """
    if len(sql) > MAX_SQL_CHARS:
        raise RuleError(f"{where}: the SQL is {len(sql)} characters long; the limit is {MAX_SQL_CHARS}")
    with _parser().cursor() as connection:
        parameters = _one_select(connection, sql, where)
        tree = _tree(connection, sql, where)
    _Walk(tables, where).check(tree)
    return parameters


def tables_named(sql: str) -> frozenset[str]:
    """The tables that a query reads, as they are written; none when it cannot be parsed. Allows nothing."""
    with _parser().cursor() as connection:
        try:
            nodes = list(_nodes(_tree(connection, sql, "query")))
        except RuleError:
            return frozenset()
    own = {entry["key"].lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", [])}
    read = {str(node["table_name"]) for node in nodes if node.get("type") == "BASE_TABLE"}
    return frozenset(name for name in read if name.lower() not in own)


@lru_cache(maxsize=1)
def _parser() -> duckdb.DuckDBPyConnection:
    """A database without tables, for its parser; opening one takes longer than reading a query."""
    return duckdb.connect(":memory:", config={"threads": "1", "enable_external_access": "false"})


def _one_select(connection: duckdb.DuckDBPyConnection, sql: str, where: str) -> frozenset[str]:
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type.name for statement in statements]
    except duckdb.Error as error:
        raise RuleError(f"{where}: the SQL cannot be parsed: {_first_line(error)}") from None
    except (ValueError, RecursionError):
        raise RuleError(f"{where}: the SQL is not a SELECT; one SELECT is allowed") from None
    if len(kinds) != 1:
        raise RuleError(f"{where}: the SQL has {len(kinds)} statements; one SELECT is allowed")
    if kinds[0] != "SELECT":
        raise RuleError(f"{where}: the SQL is a {kinds[0]} statement; one SELECT is allowed")
    return frozenset(statements[0].named_parameters)


def _tree(connection: duckdb.DuckDBPyConnection, sql: str, where: str) -> Any:
    try:
        row = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchone()
        tree = json.loads(row[0]) if row else {"error": True}
    except (duckdb.Error, RecursionError) as error:
        raise RuleError(f"{where}: the SQL cannot be analysed: {_first_line(error)}") from None
    if tree.get("error"):
        reason = tree.get("error_message", "it cannot be analysed")
        raise RuleError(f"{where}: the SQL is refused: {reason} (PIVOT and positional parameters are not supported)")
    return tree["statements"]


class _Walk:
    """Goes through the tree and refuses the first thing that is not allowed."""

    def __init__(self, tables: Collection[str], where: str) -> None:
        self._tables = frozenset(tables)
        self._where = where
        self._doublings = 0

    def check(self, tree: Any) -> None:
        nodes = list(_nodes(tree))
        known = self._tables | {name for node in nodes for name in self._ctes(node)}
        for node in nodes:
            if isinstance(node.get("class"), str):
                self._expression(node)
            elif isinstance(node.get("type"), str):
                self._node(node, known)

    def _ctes(self, node: Mapping[str, Any]) -> Iterator[str]:
        for entry in (node.get("cte_map") or {}).get("map", []):
            if not _PLAIN.fullmatch(entry["key"]):
                raise self._refuse(f"names a query {entry['key']!r}; use letters, digits and underscores")
            yield entry["key"].lower()

    def _node(self, node: Mapping[str, Any], known: Collection[str]) -> None:
        kind = node["type"]
        if kind not in NODES and not kind.endswith("_TYPE_INFO"):
            raise self._refuse(f"uses {kind}, which is not a plain query over the tables")
        if node.get("sample"):
            raise self._refuse("takes a random sample; the answer must be the same on every run")
        if kind == "BASE_TABLE":
            self._base_table(node, known)
        elif kind == "TABLE_FUNCTION":
            name = node["function"]["function_name"]
            if name.lower() not in TABLE_FUNCTIONS:
                raise self._refuse(f"calls {name}() in FROM; allowed there: {', '.join(sorted(TABLE_FUNCTIONS))}")

    def _base_table(self, node: Mapping[str, Any], known: Collection[str]) -> None:
        name = node["table_name"]
        if node.get("schema_name") or node.get("catalog_name") or node.get("at_clause"):
            raise self._refuse(f"names a catalog, schema or version with table {name!r}; write the table's name alone")
        if name.lower() not in known:
            hint = suggestion(name, known) or f"; it reads {', '.join(sorted(self._tables))}"
            raise self._refuse(f"reads {name!r}, which `requires` and `optional` do not name{hint}")

    def _expression(self, node: Mapping[str, Any]) -> None:
        kind = node["class"]
        if kind not in EXPRESSIONS:
            raise self._refuse(f"uses an expression of kind {kind}, which is not allowed")
        if node.get("sample"):
            raise self._refuse("takes a random sample; the answer must be the same on every run")
        if kind == "COLUMN_REF":
            names = node["column_names"]
            if len(names) == 1 and _AMBIENT.fullmatch(names[0]):
                raise self._refuse(f"uses {names[0]}, which differs from run to run or says where it runs")
        elif kind in ("FUNCTION", "WINDOW"):
            self._function(node)

    def _function(self, node: Mapping[str, Any]) -> None:
        name = node["function_name"].lower()
        operator = not any(c.isalnum() for c in name)
        in_from = name in TABLE_FUNCTIONS and node.get("is_table_function")
        if not operator and not in_from and name not in FUNCTIONS:
            raise self._refuse(
                f"calls {name}(), which is not among the functions allowed (no side effects, no files, no clock, "
                f"no chance, bounded memory){suggestion(name, FUNCTIONS)}"
            )
        self._doublings += name in LENGTHENING
        if self._doublings > MAX_DOUBLINGS:
            raise self._refuse(f"joins texts or lists more than {MAX_DOUBLINGS} times; that can double without end")

    def _refuse(self, reason: str) -> RuleError:
        return RuleError(f"{self._where}: the SQL is refused: it {reason}")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree; the function of a table function is marked `is_table_function`."""
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get("type") == "TABLE_FUNCTION":
                item["function"]["is_table_function"] = True
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
