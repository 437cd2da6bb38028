"""What a trace cannot be trusted with: said ahead of its findings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudoctor.ingest.kineto import Table, Trace
from gpudoctor.ingest.kineto.numbers import MISSING
from gpudoctor.units import plural

DAY_NS = 86_400 * 10**9
"""No profile lasts a day: its file would have terabytes. A time further off is a wrapped counter or a zero."""

_TIMED = ("ops", "python", "runtime", "device", "sync", "device_ranges", "overhead", "other")


def drop_impossible(trace: Trace) -> list[str]:
    """Takes events with impossible times out of the trace's tables; a sentence on what was dropped."""
    starts = [table["start_ns"] for group in _TIMED if len(table := trace.table(group))]
    if not starts:
        return []
    middle = int(np.median(np.concatenate(starts)))
    negative = far = long = 0
    for group in _TIMED:
        table = trace.table(group)
        if not len(table):
            continue
        # a difference of int64 can wrap: compare with the bounds instead
        away = (table["start_ns"] < middle - DAY_NS) | (table["start_ns"] > middle + DAY_NS)
        endless = table["dur_ns"] > DAY_NS
        below = table["dur_ns"] < 0
        far += int(away.sum())
        long += int((endless & ~away).sum())
        negative += int((below & ~away).sum())
        gone = away | endless | below
        if gone.any():
            _drop(trace, group, table, gone)
    said = []
    if negative:
        said.append(f"{plural(negative, 'event')} with a negative duration left out")
    if long:
        said.append(f"{plural(long, 'event')} longer than a day left out")
    if far:
        said.append(f"{plural(far, 'event')} more than a day away from the others left out")
    return said


def _drop(trace: Trace, group: str, table: Table, gone: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
    kept = np.cumsum(~gone) - 1
    said = trace.columns.collectives.get(group) if group == "device" else None
    if said:
        trace.columns.collectives[group] = {int(kept[row]): facts for row, facts in said.items() if not gone[row]}
    trace.tables[group] = table.take(~gone)


def overlapping(calls: int) -> str:
    """The sentence on calls that were nested wrongly."""
    return f"{plural(calls, 'call')} outlast the call around them: they were nested wrongly"


def notes(trace: Trace) -> list[str]:
    """Sentences for the user, worst first; empty for a sound trace."""
    damage, columns = trace.damage, trace.columns
    said = []
    if damage.cut:
        said.append(f"the file is damaged: {damage.cut}; the events before that were read")
    if damage.truncated and not damage.cut:
        lost = f", {damage.lost_bytes} bytes of an unfinished event are lost" if damage.lost_bytes else ""
        said.append(f"the file ends in the middle of its events{lost}: what came after is missing")
    if damage.bad:
        said.append(f"{plural(damage.bad, 'event')} damaged beyond reading left out")
    if damage.repaired:
        said.append(f"{plural(damage.repaired, 'damaged event')} repaired (unescaped text, inf or nan)")
    if damage.no_header:
        said.append("part of the trace's metadata cannot be read")
    if damage.extra_bytes:
        said.append(f"{damage.extra_bytes} bytes after the trace's end were not read (a second document?)")
    if columns.no_time:
        said.append(f"{plural(columns.no_time, 'event')} without a time left out")
    if columns.no_duration:
        said.append(f"{plural(columns.no_duration, 'event')} without an end left out")
    said += drop_impossible(trace)
    said += keep_one_process(trace)
    said += _device(trace)
    return said


def _device(trace: Trace) -> Sequence[str]:
    device, runtime = trace.table("device"), trace.table("runtime")
    launches = _launches(trace, runtime)
    if not len(device):
        if launches:
            return [f"{plural(launches, 'kernel launch', 'kernel launches')} but no GPU activity was recorded"]
        return []
    if not len(runtime):
        return ["no launch was recorded: kernels cannot be tied to operators"]
    known = np.isin(device["correlation"], runtime["correlation"]) & (device["correlation"] != MISSING)
    lost = int((~known & (device["graph_node"] <= 0)).sum())
    if lost:
        return [f"{lost} of {len(device)} GPU activities have no recorded launch"]
    return []


def _launches(trace: Trace, runtime: Table) -> int:
    if not len(runtime):
        return 0
    texts = trace.texts("name")
    codes = [code for code in np.unique(runtime["name"]).tolist() if "Launch" in texts[code]]
    return int(np.isin(runtime["name"], codes).sum())


def keep_one_process(trace: Trace) -> list[str]:
    """Keeps the calls of the process that made most of them: merged traces of several would pass for one loop."""
    calls = trace.table("ops")
    if not len(calls):
        return []
    names = [repr(pid) for pid, _ in trace.columns.threads]
    numbers = np.array([sorted(set(names)).index(name) for name in names], np.int64)
    counts = np.bincount(numbers[calls["thread"]])
    if (counts > 0).sum() < 2:
        return []
    main = int(counts.argmax())
    for group in ("ops", "python", "runtime", "sync", "memory"):
        table = trace.table(group)
        if len(table):
            trace.tables[group] = table.take(numbers[table["thread"]] == main)
    return [f"{int((counts > 0).sum())} processes are in this file: only the calls of one of them were judged"]
