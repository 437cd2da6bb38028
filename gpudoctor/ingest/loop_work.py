"""Fills `host_calls` and `gc_pauses`: what a step printed, logged or saved, and Python's garbage collections in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.ingest.explicit_calls import COLLECT, began_by_itself
from gpudoctor.ingest.watch import WatchLog

Row = dict[str, Any]


def tables(log: WatchLog, steps: Sequence[Row], sources: Mapping[str, str]) -> dict[str, list[Row]]:
    """Rows of both tables; work outside of the steps' own time (validation, gpudoctor's own) is left out.

    Args:
        log: the watch log.
        steps: rows of `steps`, in order.
        sources: texts of the user's files: whether a line collects by hand.
    """
    kinds = {kind["number"]: kind for kind in log.kinds}
    starts = [row["start_ns"] for row in steps]
    calls: dict[tuple[int, int], Row] = {}
    pauses: dict[tuple[int, int], Row] = {}
    by_hand, collected = _by_hand(log, sources, len(log.kinds))
    kinds |= by_hand
    for start_ns, _, number, count, dur_ns in [*log.work, *collected]:
        at = bisect_right(starts, start_ns) - 1
        about = kinds.get(number)
        if at < 0 or about is None or start_ns >= starts[at] + steps[at]["dur_ns"]:
            continue
        step = steps[at]["step"]
        row: Row
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


def _by_hand(log: WatchLog, sources: Mapping[str, str], first: int) -> tuple[dict[int, Row], list[list[int]]]:
    """Collections in code that collects by hand, as kinds numbered from `first` on and rows of work."""
    kinds: dict[tuple[Any, ...], Row] = {}
    work = []
    for call in log.explicit_calls:
        if call.what != COLLECT:
            continue
        explicit = not began_by_itself(call, sources)
        key = (call.generation, explicit, call.file, call.line)
        place = {"file": call.file, "line": call.line, "function": call.function}
        about = {"number": first + len(kinds), "kind": "gc", "generation": call.generation, "explicit": explicit}
        number = kinds.setdefault(key, about | place)["number"]
        work.append([call.start_ns, call.end_ns, number, 1, call.end_ns - call.start_ns])
    return {about["number"]: about for about in kinds.values()}, work
