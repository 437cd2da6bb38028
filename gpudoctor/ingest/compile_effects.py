"""What each call of torch.compile came to: graphs, or none and why. Table `compile_effects`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.ingest.compile_breaks import is_wrapper, root_function

Row = dict[str, Any]


def rows(
    calls: Sequence[Row], targets: Mapping[str, Any], compilations: Sequence[Row], breaks: Sequence[Row]
) -> list[Row]:
    """The rows of `compile_effects`, one a call of torch.compile in the user's code that was not switched off.

    Args:
        calls: rows of `compile_calls`.
        targets: content of compile_targets.json.
        compilations: rows of `compilations`.
        breaks: rows of `graph_breaks`.
    """
    eager = targets["eager"]
    roots = {_root(call): number for number, call in enumerate(calls)}
    own: dict[int, list[Row]] = {}
    strangers = []
    for row in compilations:
        number = roots.get((row["file"], root_function(row["function"])))
        if number is None:
            strangers.append(row)
        else:
            own.setdefault(number, []).append(row)
    made = []
    for number, call in enumerate(calls):
        if call.get("disabled") or targets.get("disabled") or not call.get("by_user", True):
            continue
        family = own.get(roots[_root(call)], [])
        graphs = _graphs(family) or _graphs(_standing_in(call, strangers))
        seen = (eager[number] if number < len(eager) else None) or {}
        row = {key: call.get(key) for key in ("file", "line", "function", "target", "backend", "mode")}
        row |= {"graphs": graphs, "compilations": len(family)}
        row |= {f"eager_{key}": seen.get(key) for key in ("file", "line", "function", "method")}
        made.append(row | _why(row, call, seen, family, breaks))
    return made


def _first_words(reason: str) -> str:
    """The reason without what follows it: a headline can stand on a line of its own (`backend='mine' raised:`)."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


def mark(breaks: Sequence[Row], effects: Sequence[Row]) -> None:
    """Fills `whole` of `graph_breaks`, in place: breaks that left nothing of a target compiled."""
    places = {(row["why_file"], row["why_line"]) for row in effects if row["no_effect"] == "skipped"}
    for row in breaks:
        row["whole"] = (row["file"], row["line"]) in places


def _root(call: Row) -> tuple[Any, Any]:
    return call.get("target_file"), call.get("target_function")


def _graphs(compilations: Sequence[Row]) -> int:
    return sum(1 for row in compilations if row["graph_ops"])


def _standing_in(call: Row, strangers: Sequence[Row]) -> Sequence[Row]:
    """Compilations of no target's own code that can be this one's.

    What a skipped function calls is compiled by itself. A module of torch's own runs through a frame of Dynamo's when
    it was wrapped, never when it was compiled in place.
    """
    if not call.get("in_place"):
        return strangers
    return [row for row in strangers if not is_wrapper(row["file"])]


def _why(row: Row, call: Row, seen: Row, family: Sequence[Row], breaks: Sequence[Row]) -> Row:
    """Why a target that ran has no graph, and the line to look at."""
    here = {"why_file": row["eager_file"], "why_line": row["eager_line"]}
    if row["graphs"] or row["eager_line"] is None:
        return {"no_effect": None, "why": None, "why_file": None, "why_line": None}
    ids = {one["compile_id"] for one in family}
    broke = next((one for one in breaks if one["compile_id"] in ids and one["line"]), None)
    if broke is not None:
        reason = broke["explanation"] or broke["reason"]
        return {"no_effect": "skipped", "why": reason, "why_file": broke["file"], "why_line": broke["line"]}
    failed = next((one for one in family if one["fail_reason"]), None)
    if failed is not None:
        return {"no_effect": "failed", "why": _first_words(failed["fail_reason"]), **here}
    if family:
        return {"no_effect": "empty", "why": None, **here}
    if row["eager_method"] not in (None, call.get("target_function")):
        return {"no_effect": "bypassed", "why": None, **here}
    kind = "generator" if seen.get("generator") else "in place" if call.get("in_place") else "unused"
    call_line = {"why_file": row["file"], "why_line": row["line"]}
    return {"no_effect": kind, "why": None, **(here if kind == "generator" or not row["line"] else call_line)}
