"""What each call of the host waited for: a synchronisation, a blocking copy, memory given back, a full queue."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpudoctor.analysis.simulate.constants import Constants, outstanding
from gpudoctor.analysis.simulate.events import KINDS, NONE, Events, Floats, Ints
from gpudoctor.analysis.simulate.streams import NEAR_NS, records

_SYNC = re.compile(r"^(cuda|hip)(Stream|Device|Event|Ctx)Synchronize|^cu(Stream|Ctx|Event)Synchronize")
_MEMORY = re.compile(r"^(cuda|hip)(Free|FreeHost|HostFree|HostUnregister|Malloc|HostAlloc|HostMalloc)$")
_BLOCKING = {"cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"}

MEMORY_NS = 50_000.0
"""A call that allocates or frees device memory and takes longer has waited for the device."""

_SYNC_OWN_NS, _COPY_OWN_NS = 3_000.0, 8_000.0
_LONG_NS, _LONG = 30_000.0, 4.0
_MIN_WAIT_NS = 12_000.0
_COPY = KINDS.index("memcpy")
_QUEUE_SHARE, _QUEUE_NEAR_NS = 0.9, 100_000.0

Kind = Literal["sync", "done", "memory", "copy", "copy_start", "queue"]


@dataclass(frozen=True, slots=True)
class Wait:
    """What one call waited for.

    Attributes:
        kind: a synchronisation; one that found all done; memory; a copy, till its end or its begin; the queue.
        sources: activities; the latest counts.
        own: the call's own time before it waits, ns.
        tail: from the end (of a copy_start: begin) of what it waited for to its return, ns. Where all was done, the
            driver's own work of a call that gives memory back: it comes behind a wait.
    """

    kind: Kind
    sources: tuple[int, ...]
    own: float
    tail: float


def waits(events: Events, constants: Constants, order: Ints) -> dict[int, Wait]:
    """What calls waited for, by row of the call; calls that waited for nothing are left out.

    Args:
        events: all.
        constants: the trace's.
        order: rows of launched activities in the order of their launches.
    """
    if not len(events.calls) or not len(events.activities):
        return {}
    search = _Search(events, constants, order)
    found = {}
    for call in range(len(events.calls)):
        wait = search.launching(call) if call in search.launched else search.waiting(call)
        if wait is not None:
            found[call] = wait
    return found


class _Search:
    """Looks through the calls in their order."""

    def __init__(self, events: Events, constants: Constants, order: Ints) -> None:
        activities, calls = events.activities, events.calls
        self.events, self.constants = events, constants
        self.launched: dict[int, list[int]] = {}
        for row, call in enumerate(activities.call.tolist()):
            if call != NONE:
                self.launched.setdefault(call, []).append(row)
        counts = outstanding(activities, calls, order).tolist()
        self._outstanding = dict(zip(activities.call[order].tolist(), counts, strict=True))
        self._ended: list[int] = np.argsort(activities.end, kind="stable").tolist()
        self._ends: list[float] = activities.end[self._ended].tolist()
        self._start, self._end = activities.start.tolist(), activities.end.tolist()
        self._lane, self._stream = activities.lane.tolist(), activities.stream.tolist()
        self._began, self._until = calls.start.tolist(), calls.end.tolist()
        self._name, self._thread = calls.name.tolist(), calls.thread.tolist()
        self._usual = constants.typical.tolist()
        self._syncs = [bool(_SYNC.match(text)) for text in calls.texts]
        self._memory = [bool(_MEMORY.match(text)) for text in calls.texts]
        duration = calls.end - calls.start
        self._shortest = [_tenth(duration[calls.name == name]) for name in range(len(calls.texts))]
        self._latest: dict[int, int] = {}
        self._lanes = _lanes(events)
        self._recorded = records(calls)
        self._records = sorted(self._recorded.values())

    def launching(self, call: int) -> Wait | None:
        """A call that launched something: a copy that it waited for, or room in the queue."""
        rows, name = self.launched[call], self._name[call]
        row = rows[0]
        self._latest[self._thread[call]] = self._lane[rows[-1]]
        activities, text = self.events.activities, self.events.calls.texts[name]
        began, until = self._began[call], self._until[call]
        usual = self._usual[name]
        long = until - began > max(_LONG_NS, _LONG * usual)
        wait = None
        if activities.kind[row] == _COPY and (activities.pageable[row] or text in _BLOCKING or long):
            wait = _copy(row, self._start[row], self._end[row], began, until, long)
        full = self.constants.queue_seen and self._outstanding.get(call, 0) >= _QUEUE_SHARE * self.constants.queue
        if wait is None and long and full and self._start[row] > until - NEAR_NS:
            wait = _full_queue(row, began, until, usual, self._ended, self._ends)
        return wait

    def waiting(self, call: int) -> Wait | None:
        """A call that launched nothing: a synchronisation, or memory that was given back once the device was done."""
        name = self._name[call]
        began, until = self._began[call], self._until[call]
        took = until - began
        freed = self._memory[name] and took > MEMORY_NS
        if not self._syncs[name] and not freed:
            return None
        sources = [row for row in self._sources(call) if self._end[row] <= until + NEAR_NS]
        if not sources:
            return None
        last = max(self._end[row] for row in sources)
        if last > began:
            return Wait("memory" if freed else "sync", tuple(sources), min(took, _SYNC_OWN_NS), until - last)
        return Wait("done", tuple(sources), took, took if freed else 0.0)

    def _sources(self, call: int) -> list[int]:
        """What a call can have waited for: the last of each stream, or of the one stream that it is about."""
        name, began = self._name[call], self._began[call]
        last = self._last(began)
        text = self.events.calls.texts[name]
        if "Stream" not in text and "Event" not in text:
            return last
        known = self.events.waits.by_correlation.get(int(self.events.calls.correlation[call]))
        if known is not None and "Event" in text and known[1] >= 0:
            recorded = self._last(self._recorded.get(known[2], began))
            return [row for row in recorded if self._stream[row] == known[1]] or last
        if known is not None and "Event" not in text and known[0] >= 0:
            return [row for row in last if self._stream[row] == known[0]] or last
        if self._until[call] - began > max(_MIN_WAIT_NS, 2 * self._shortest[name]):
            return self._explaining(began, self._until[call]) or last
        if "Event" in text:  # most likely the one that was recorded last; what was launched since does not hold it
            at = bisect_right(self._records, began) - 1
            last = self._last(self._records[at]) if at >= 0 else last
        return [row for row in last if self._lane[row] == self._latest.get(self._thread[call])]

    def _last(self, time: float) -> list[int]:
        """The last activity of each stream that was launched before a time."""
        found = []
        for starts, rows in self._lanes:
            at = bisect_right(starts, time) - 1
            if at >= 0:
                found.append(rows[at])
        return found

    def _explaining(self, began: float, until: float) -> list[int]:
        """The activity whose end explains a return: the last to end before it, and after the call began."""
        at = bisect_right(self._ends, until + NEAR_NS) - 1
        while at >= 0 and self._ends[at] > began:
            launch = int(self.events.activities.call[self._ended[at]])
            if launch == NONE or self._began[launch] < began:
                return [self._ended[at]]
            at -= 1
        return []


def _lanes(events: Events) -> list[tuple[list[float], list[int]]]:
    """By stream: when each activity was launched (never earlier than the one before), and its row."""
    activities, calls = events.activities, events.calls
    made: list[tuple[list[float], list[int]]] = []
    for lane in np.unique(activities.lane).tolist():
        rows = np.flatnonzero(activities.lane == lane)
        call = activities.call[rows]
        begin = np.where(call != NONE, calls.start[np.maximum(call, 0)], -np.inf)
        made.append((np.maximum.accumulate(begin).tolist(), rows.tolist()))
    return made


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


def _tenth(values: Floats) -> float:
    return float(np.sort(values)[int(0.1 * len(values))]) if len(values) else 5_000.0
