"""Fills the table `padded_inputs` from what the recorder counted in ids and masks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

_AS_THEY_ARE = ("source", "module", "file", "line", "function", "rows", "width", "padded", "shortest", "longest")


def add(
    raw: Sequence[Mapping[str, Any]] | None,
    compile_calls: Sequence[Mapping[str, Any]],
    step_rows: Sequence[Mapping[str, Any]],
    tables: dict[str, list[dict[str, Any]]],
    missing: dict[str, str],
    how: dict[str, str],
) -> None:
    """Adds the table, or why there is none.

    Args:
        raw: content of `padded_inputs.json`; None when it was not written.
        compile_calls: rows of `compile_calls`.
        step_rows: rows of `steps`.
        tables: takes the rows.
        missing: takes the reason.
        how: takes what to do about it, where that is not what the tables' declaration says.
    """
    if raw is None:
        missing["padded_inputs"] = "no profiled step was watched line by line"
    elif not raw and not all(call.get("disabled") for call in compile_calls):
        missing["padded_inputs"] = "the run compiles: what compiled code gives to its embeddings is not seen"
        how["padded_inputs"] = how["padding"] = "run it once uncompiled, with TORCHDYNAMO_DISABLE=1"
    else:
        tables["padded_inputs"] = rows(raw, step_rows)
        return
    missing["padding"] = missing["padded_inputs"]


def rows(raw: Sequence[Mapping[str, Any]], step_rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `padded_inputs`: those that fall into a profiled step.

    Args:
        raw: what the recorder wrote.
        step_rows: rows of `steps`.
    """
    profiled = [row for row in step_rows if row["observation"] == "detail"]
    starts = [row["start_ns"] for row in profiled]
    made = []
    for one in raw:
        at = bisect_right(starts, one["start_ns"]) - 1
        if at >= 0 and one["start_ns"] < profiled[at]["start_ns"] + profiled[at]["dur_ns"]:
            made.append({"step": profiled[at]["step"]} | {name: one[name] for name in _AS_THEY_ARE})
    return made
