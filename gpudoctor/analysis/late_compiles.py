"""Functions that are compiled again and again after warm-up though no guard says why: table `late_compiles`.

What a failed guard explains is in `recompile_causes`. Here is the rest: code that is made anew (each time another code
object), or compiled code that was thrown away (torch._dynamo.reset).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpudoctor.ingest.compile_breaks import root_function

Row = dict[str, Any]


def rows(
    compilations: Sequence[Row], compile_calls: Sequence[Row], steps: Sequence[Row], causes: Sequence[Row]
) -> list[Row]:
    """The rows of `late_compiles`, the most expensive first.

    Args:
        compilations: rows of `compilations`.
        compile_calls: rows of `compile_calls`.
        steps: rows of `steps`.
        causes: rows of `recompile_causes`: the frames in it are explained.
    """
    steady = {row["step"] for row in steps if not row["warmup"]}
    explained = {cause["frame"] for cause in causes if cause["recompiles"] >= 2 or cause["limit_hit"]}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in compilations:
        if row["step"] in steady and row["frame"] not in explained and not row["resumes"]:
            groups.setdefault((row["file"], row["line"], row["function"]), []).append(row)
    made = [_late(group, compile_calls, len(steady)) for group in groups.values()]
    return sorted((row for row in made if row["steps"] >= 2), key=lambda row: -row["dur_ns"])


def _late(group: Sequence[Row], calls: Sequence[Row], steady: int) -> Row:
    first = group[0]
    ids = [row["compile_id"] for row in group]
    name = root_function(first["function"])
    own = [c for c in calls if (c.get("target_file"), c.get("target_function")) == (first["file"], name)]
    busiest: Sequence[Row] = max(
        ([c for c in own if c["line"] == line] for line in {c["line"] for c in own}), key=len, default=()
    )
    return {
        **{key: first[key] for key in ("function", "file", "line", "caller_file", "caller_line")},
        "compilations": len(group),
        "steps": len({row["step"] for row in group}),
        "steps_seen": steady,
        "dur_ns": sum((row["dur_ns"] or 0) + (row["backward_ns"] or 0) for row in group),
        "reset": len(set(ids)) < len(ids),
        "calls": len(busiest),
        "in_loop": len({c["step"] for c in busiest if c["step"] is not None}) >= 2,
        "compile_file": busiest[0]["file"] if busiest else None,
        "compile_line": busiest[0]["line"] if busiest else None,
    }
