"""Turns the evidence columns of a rule's rows into a table of text; a column's suffix gives its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpudoctor.diagnosis import Evidence
from gpudoctor.units import format_bytes, format_count, format_ns, format_share

CONTRACT = frozenset(
    (
        *("file", "line", "function", "module", "precision", "role"),
        *(
            "events",
            "remains",
            "least_ns",
            "most_ns",
            "mean_step_ns",
            "memory_bytes",
            "count",
            "cost_ns",
            "saving_basis",
            "severity",
            "accepted",
        ),
        *("remedy", "locations", "evidence"),
    )
)
"""Columns with a meaning of their own; all others are evidence, except those that begin with `_`."""

MISSING = "–"
"""What stands for null in a table."""

_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_ns", format_ns),
    ("_us", lambda value: format_ns(value * 10**3)),
    ("_ms", lambda value: format_ns(value * 10**6)),
    ("_s", lambda value: format_ns(value * 10**9)),
    ("_bytes", format_bytes),
    ("_ratio", format_share),
)
_PER_STEP = "_per_step"


ROW_TITLE = "Measured"
"""What the table of a row's own evidence columns is called."""


def evidence_of(row: Mapping[str, Any], list_title: str = ROW_TITLE) -> tuple[Evidence, ...]:
    """The evidence of one row: a table of its evidence columns, then one of its list of structs `evidence`.

    Args:
        row: a row of a rule's query. Suffixes `_ns`, `_us`, `_ms`, `_s`, `_bytes` and `_ratio` choose the format,
            `_per_step` (after or before the unit) is said in the column's title.
        list_title: what the table of the list is called.

    Returns:
        No, one or two tables.
    """
    plain = {name: value for name, value in row.items() if name not in CONTRACT and not name.startswith("_")}
    tables = [_table(ROW_TITLE, [plain])] if plain else []
    listed = row.get("evidence")
    if isinstance(listed, list) and listed:
        tables.append(_table(list_title, [item for item in listed if isinstance(item, dict)]))
    return tuple(table for table in tables if table.rows)


def column_title(name: str) -> str:
    """The title of a column: `wait_ns_per_step` becomes "wait per step"."""
    base, per_step = _without_per_step(name)
    for suffix, _ in _UNITS:
        base = base.removesuffix(suffix) if base.endswith(suffix) else base
    return base.replace("_", " ") + (" per step" if per_step else "")


def cell(name: str, value: Any) -> str:
    """One value as text, in the unit that the column's name gives."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(cell(name, item) for item in value) or MISSING
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(key, item)}" for key, item in value.items())
    if isinstance(value, int | float):
        base, _ = _without_per_step(name)
        return next((format_ for suffix, format_ in _UNITS if base.endswith(suffix)), format_count)(value)
    return str(value)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Evidence:
    """A table of the columns in which some row says something."""
    listed = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in listed if any(cell(name, row.get(name)) != MISSING for row in rows)]
    cells = (tuple(cell(name, row.get(name)) for name in names) for row in rows)
    return Evidence(title, _titles(names), tuple(cells) if names else ())


def _titles(names: Sequence[str]) -> tuple[str, ...]:
    """The columns' titles; those that would be the same (`time_ns`, `time_ratio`) say what they measure."""
    plain = [column_title(name) for name in names]
    return tuple(
        f"{title} ({_measure(name)})" if plain.count(title) > 1 else title
        for name, title in zip(names, plain, strict=True)
    )


def _measure(name: str) -> str:
    base, _ = _without_per_step(name)
    suffix = next((suffix for suffix, _ in _UNITS if base.endswith(suffix)), "")
    return {"": "number", "_bytes": "bytes", "_ratio": "share"}.get(suffix, "time")


def _without_per_step(name: str) -> tuple[str, bool]:
    return name.replace(_PER_STEP, ""), _PER_STEP in name
