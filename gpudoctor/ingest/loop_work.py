"""Fills `host_calls` and `gc_pauses`: what a step printed, logged or saved, and Python's garbage collections in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from gpudoctor.ingest.watch import WatchLog


def tables(log: WatchLog, steps: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of both tables; work outside of the steps' own time (validation, gpudoctor's own) is left out.

    Args:
        log: the watch log.
        steps: rows of `steps`, in order.
    """
    kinds = {kind["number"]: kind for kind in log.kinds}
    starts = [row["start_ns"] for row in steps]
    calls: dict[tuple[int, int], dict[str, Any]] = {}
    pauses: dict[tuple[int, int], dict[str, Any]] = {}
    for start_ns, _, number, count, dur_ns in log.work:
        at = bisect_right(starts, start_ns) - 1
        about = kinds.get(number)
        if at < 0 or about is None or start_ns >= starts[at] + steps[at]["dur_ns"]:
            continue
        step = steps[at]["step"]
        row: dict[str, Any]
        if about["kind"] == "gc":
            row = {"generation": about["generation"], "explicit": about["explicit"]}
            row |= {name: about.get(name) for name in ("file", "line", "function")}
            made = pauses
        else:
            innermost = (about.get("stack") or [[None, None, None]])[0]
            row = {"kind": about["kind"], "name": about["name"]}
            row |= dict(zip(("file", "line", "function"), innermost, strict=True))
            made = calls
        row = made.setdefault((step, number), {"step": step, **row, "calls": 0, "dur_ns": 0})
        row["calls"] += count
        row["dur_ns"] += dur_ns
    return {"host_calls": list(calls.values()), "gc_pauses": list(pauses.values())}
