"""Groups recompilations by what changed, and says which of the user's lines has to change: table `recompile_causes`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.analysis import assignments

Row = dict[str, Any]

_MAX_VALUE = 30  # characters of one value that are shown

_ATTRIBUTE = re.compile(r"\.(\w+)$")


def rows(
    recompiles: Sequence[Row],
    compilations: Sequence[Row],
    schedulers: Sequence[Row],
    sources: Mapping[str, str],
    steps: int = 0,
) -> list[Row]:
    """The rows of `recompile_causes`, in order of the first recompilation.

    Args:
        recompiles: rows of `recompiles`.
        compilations: rows of `compilations`; a refused one tells that its frame reached the limit.
        schedulers: rows of `schedulers`.
        sources: texts of the user's files by name.
        steps: number of steps seen.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in recompiles:
        key = (row["frame"], row["function"], row["cause"], row["changed"], row["source"], row["used_line"])
        groups.setdefault(key, []).append(row)
    refused = {row["compile_id"]: row for row in compilations if row["limit_hit"]}
    made = []
    for number, group in enumerate(groups.values()):
        limit = next((refused[row["compile_id"]] for row in group if row["compile_id"] in refused), None)
        made.append(_cause(number, group, limit, schedulers, sources) | {"steps_seen": steps or None})
    for row in made:
        if row["limit_hit"] and steps:
            row["steps_after"] = steps - 1 - row["limit_step"] if row["limit_step"] is not None else steps
    return made


def _cause(
    number: int, group: Sequence[Row], limit: Row | None, schedulers: Sequence[Row], sources: Mapping[str, str]
) -> Row:
    first, last = group[0], group[-1]
    expected = [row["expected"] for row in group if row["expected"] is not None]
    seen = [*expected[:1], *(v for row in group for v in (row["expected"], row["actual"]) if v)]
    values = list(dict.fromkeys(map(_short, seen)))
    row: Row = {
        "number": number,
        **{key: first[key] for key in ("frame", "function", "cause", "changed", "held_in", "source", "dimension")},
        "values": ", ".join(values) or None,
        "value_count": len(values) or None,
        "recompiles": len(group) - (limit is not None),
        "dur_ns": sum(row["dur_ns"] or 0 for row in group),
        "first_step": first["step"],
        "last_step": last["step"],
        "limit_hit": limit is not None,
        "limit_step": limit["step"] if limit else None,
        **{key: last[key] or first[key] for key in ("caller_file", "caller_line", "compile_file", "compile_line")},
        "used_file": first["used_file"],
        "used_line": first["used_line"],
    }
    row |= _setter(row, schedulers, sources)
    row["constant"] = bool(row["held_in"] == "attribute" and row["setter"] is None and row["used_file"] in sources)
    ragged = all(row["ragged_batch"] and row["loader_line"] for row in group)
    if ragged:
        row["loader_file"], row["loader_line"] = first["loader_file"], first["loader_line"]
    return row | _place(row, ragged, first)


def _short(value: str) -> str:
    """A number with four significant digits (a float's last ones tell nobody anything), a long text cut."""
    if re.fullmatch(r"-?\d*\.\d{4,}(e-?\d+)?", value):
        return f"{float(value):.4g}"
    return value if len(value) <= _MAX_VALUE else value[: _MAX_VALUE - 1] + "…"


def _setter(row: Row, schedulers: Sequence[Row], sources: Mapping[str, str]) -> Row:
    """The user's line that changes the value, where it can be told."""
    none: Row = {"setter_file": None, "setter_line": None, "setter": None}
    if row["held_in"] == "optimizer":
        rate = "'lr'" in str(row["source"]) or '"lr"' in str(row["source"])
        known = [item for item in schedulers if item["line"] and (rate or item["cycles_momentum"])]
        if known:
            return {"setter_file": known[0]["file"], "setter_line": known[0]["line"], "setter": known[0]["kind"]}
        return none
    match = _ATTRIBUTE.search(str(row["source"])) if row["held_in"] in ("attribute", "global") else None
    if match and row["changed"] != "training flag" and (found := assignments.lines(sources, match[1])):
        near = [place for place in found if place[0] == row["used_file"]] or found
        return {"setter_file": near[0][0], "setter_line": near[0][1], "setter": f".{match[1]}"}
    return none


def _place(row: Row, ragged: bool, first: Row) -> Row:
    """The line to change first: where sizes are fixed or shortened, where a value changes, or who passes it in."""
    static = row["cause"] == "shape" and first["compile_dynamic"] == "False"
    order = ["caller", "used", "compile"]
    if row["cause"] == "shape":
        order = ["loader" if ragged else "compile" if static else "caller", *order]
    elif row["changed"] == "backend":
        order = ["compile", *order]
    elif row["held_in"] in ("optimizer", "attribute", "global", "continuation"):
        order = ["setter", "used", "compile", "caller"] if row["held_in"] == "optimizer" else ["used", "setter", *order]
    roles = {"compile": "torch.compile", "loader": "DataLoader", "used": "reads it", "setter": "changes it"}
    for which in order:
        if row.get(f"{which}_line"):
            role = roles.get(which, which)
            return {"file": row[f"{which}_file"], "line": row[f"{which}_line"], "role": role}
    return {"file": first["file"], "line": first["line"], "role": "compiled"}
