"""What each runtime call of the host waited for: a synchronisation, a blocking copy, memory given back, a full queue.

Edges 7 to 9 of PRICING.md.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpudoctor.analysis.simulate.constants import Constants, outstanding
from gpudoctor.analysis.simulate.events import NONE, Events
from gpudoctor.analysis.simulate.streams import NEAR_NS

_SYNC = re.compile(r"^(cuda|hip)(Stream|Device|Event|Ctx)Synchronize|^cu(Stream|Ctx|Event)Synchronize")
_MEMORY = re.compile(r"^(cuda|hip)(Free|FreeHost|HostFree|HostUnregister|Malloc|HostAlloc|HostMalloc)$")
_BLOCKING = {"cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"}

MEMORY_NS = 50_000.0
"""A call that allocates or frees device memory and takes longer has waited for the device."""

_SYNC_OWN_NS, _COPY_OWN_NS = 3_000.0, 8_000.0
_LONG_NS, _LONG = 30_000.0, 4.0
_QUEUE_SHARE, _QUEUE_NEAR_NS = 0.9, 100_000.0

Kind = Literal["sync", "done", "memory", "copy", "copy_start", "queue"]


@dataclass(frozen=True, slots=True)
class Wait:
    """What one call waited for.

    Attributes:
        kind: a synchronisation; one that found all done; memory; a copy, till its end or its begin; the queue.
        sources: activities; the latest counts.
        own: the call's own time before it waits, ns.
        tail: from the end (of a copy_start: begin) of what it waited for to its return, ns.
    """

    kind: Kind
    sources: tuple[int, ...]
    own: float
    tail: float


class _Streams:
    """The last activity of each stream that was launched before a time."""

    def __init__(self, events: Events) -> None:
        activities, calls = events.activities, events.calls
        self._lanes: list[tuple[list[float], list[int]]] = []
        for lane in np.unique(activities.lane).tolist():
            rows = np.flatnonzero(activities.lane == lane)
            call = activities.call[rows]
            begin = np.where(call != NONE, calls.start[np.maximum(call, 0)] if len(calls) else -np.inf, -np.inf)
            self._lanes.append((np.maximum.accumulate(begin).tolist(), rows.tolist()))

    def last(self, time: float) -> list[int]:
        found = []
        for starts, rows in self._lanes:
            at = bisect_right(starts, time) - 1
            if at >= 0:
                found.append(rows[at])
        return found


def waits(events: Events, constants: Constants, order: np.ndarray) -> dict[int, Wait]:
    """What calls waited for, by row of the call; calls that waited for nothing are left out."""
    activities, calls = events.activities, events.calls
    if not len(calls) or not len(activities):
        return {}
    streams = _Streams(events)
    launched: dict[int, list[int]] = {}
    for row, call in enumerate(activities.call.tolist()):
        if call != NONE:
            launched.setdefault(call, []).append(row)
    left = dict(zip(activities.call[order].tolist(), outstanding(activities, calls, order).tolist(), strict=True))
    ended = np.argsort(activities.end, kind="stable").tolist()
    ends = activities.end[ended].tolist()
    duration = calls.end - calls.start
    shortest = [_tenth(duration[calls.name == name]) for name in range(len(calls.texts))]
    syncs = [bool(_SYNC.match(text)) for text in calls.texts]
    memory = [bool(_MEMORY.match(text)) for text in calls.texts]
    latest: dict[int, int] = {}
    found: dict[int, Wait] = {}
    start, end = activities.start.tolist(), activities.end.tolist()
    lane, stream = activities.lane.tolist(), activities.stream.tolist()
    rows = zip(
        calls.start.tolist(),
        calls.end.tolist(),
        calls.thread.tolist(),
        calls.name.tolist(),
        calls.correlation.tolist(),
        strict=True,
    )
    for call, (began, until, thread, name, correlation) in enumerate(rows):
        took = until - began
        usual = float(constants.typical[name])
        long = took > max(_LONG_NS, _LONG * usual)
        own = launched.get(call)
        if own:
            row = own[0]
            latest[thread] = lane[own[-1]]
            wait = None
            if activities.kind[row] == 1 and (activities.pageable[row] or calls.texts[name] in _BLOCKING or long):
                wait = _copy(row, start[row], end[row], began, until, long)
            if wait is None and long and start[row] > until - NEAR_NS and constants.queue_seen:
                if left.get(call, 0) >= _QUEUE_SHARE * constants.queue:
                    wait = _full_queue(row, began, until, usual, ended, ends)
            if wait is not None:
                found[call] = wait
            continue
        freed = memory[name] and took > MEMORY_NS
        if not syncs[name] and not freed:
            continue
        sources = streams.last(began)
        text = calls.texts[name]
        if "Stream" in text or "Event" in text:
            known = events.waits.by_correlation.get(correlation)
            if known is not None and known[0] >= 0 and "Event" not in text:
                sources = [row for row in sources if stream[row] == known[0]] or sources
            elif known is not None and known[1] >= 0:
                sources = [row for row in sources if stream[row] == known[1]] or sources
            elif took > max(12_000.0, 2 * shortest[name]):
                sources = _explaining(events, ended, ends, began, until) or sources
            else:
                sources = [row for row in sources if lane[row] == latest.get(thread)]
        sources = [row for row in sources if end[row] <= until + NEAR_NS]
        if not sources:
            continue
        last = max(end[row] for row in sources)
        if last > began:
            kind: Kind = "memory" if freed else "sync"
            found[call] = Wait(kind, tuple(sources), min(took, _SYNC_OWN_NS), until - last)
        else:
            found[call] = Wait("done", tuple(sources), took, 0.0)
    return found


def _copy(row: int, start: float, end: float, began: float, until: float, long: bool) -> Wait | None:
    """A copy during which the host waited: till its end, or, when it returned before, till it began."""
    took = until - began
    if end <= until + NEAR_NS:
        return Wait("copy", (row,), min(took, max(start - began, 0.0), _COPY_OWN_NS), until - end)
    if long and began - NEAR_NS <= start <= until:
        return Wait("copy_start", (row,), min(took, _COPY_OWN_NS), until - start)
    return None


def _full_queue(row: int, began: float, until: float, usual: float, ended: list[int], ends: list[float]) -> Wait | None:
    """A launch that waited for room: till the end of the activity that ended last before the call returned."""
    at = bisect_right(ends, until + NEAR_NS) - 1
    if at < 0 or ends[at] <= began or ended[at] == row or until - ends[at] >= _QUEUE_NEAR_NS:
        return None
    return Wait("queue", (ended[at],), min(until - began, usual), until - ends[at])


def _explaining(events: Events, ended: list[int], ends: list[float], began: float, until: float) -> list[int]:
    """The launched activity whose end explains a return: the last to end before it, and after the call began."""
    activities, calls = events.activities, events.calls
    at = bisect_right(ends, until + NEAR_NS) - 1
    while at >= 0 and ends[at] > began:
        launch = activities.call[ended[at]]
        if launch == NONE or calls.start[launch] < began:
            return [ended[at]]
        at -= 1
    return []


def _tenth(values: np.ndarray) -> float:
    return float(np.sort(values)[int(0.1 * len(values))]) if len(values) else 5_000.0
