"""The step budget with a GPU: each nanosecond of each step on each device has one owner.

The ruler is the device: computing, else communication, else copies, else it is idle. Idle time belongs to whatever made
the work late that ended it. That work is the next activity on the device; its launch call is the event that came late:

1. Up to the begin of that call, idle time belongs to what the launching thread was doing (`host`): waiting for input,
   blocked in a call, in the allocator, compiling, in the optimizer, in an operator or launch call. Where that thread
   was in no event, another launching thread or the loop's says (main waits while the autograd engine launches, and
   the other way round). Where none was in an event but one had been and one went on afterwards, it ran Python.
2. From the begin of the call on it is the latency of a launch, up to a usual latency after the call's end.
3. What then is left, and all of it when the call began well before the gap, is `queued`: the work had been launched and
   the device did not begin it: the hand-over between two activities, or a wait for another stream or device.
4. Idle time of the kinds launch, python and optimizer behind a wait is the wait's, as far as the device was busy during
   it and until the host is ahead again (`waits`): the host was waiting when that work should have been issued.

Kernels of a graph replay share the graph's launch call. For an activity without a recorded launch the thread of the
nearest activity with one stands in, and the call counts as coming at the activity's begin. What no event explains is
`unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis import exposed, host
from gpudoctor.analysis import waits as waiting
from gpudoctor.analysis.host import Codes, Events, Thread
from gpudoctor.analysis.intervals import Ints, Spans, covered, merge, split, subtract, union
from gpudoctor.columns import MISSING

OWNERS = (*host.ACTIVITIES, "python", "queued", "unknown")
"""Owners of idle time; the first are the host's activities, with their codes."""
PYTHON, QUEUED, UNKNOWN = (OWNERS.index(name) for name in ("python", "queued", "unknown"))

LATENCY_NS = 20_000
"""Latency of a launch that finds the device idle: 1 to 28 µs in public traces, below 20 for nearly all."""

LEAD_NS = 100_000
"""An activity that begins so long after its launch call returned shows that the host is several launches ahead."""

_WORK = (host.LAUNCH, host.OPTIMIZER, PYTHON)
_WAITS = (host.COMPILE, host.INPUT, host.SYNC, host.MEMORY)

Indexes = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Activities:
    """The activities of one device in the order of their begins.

    Attributes:
        start: begins.
        end: ends.
        role: roles as in `exposed`.
        call: number of the launch call among the events; -1 when not recorded.
        call_start: begin of that call; `MISSING` when not recorded.
        call_end: its end.
        thread: the launching thread; `MISSING` when not recorded.
    """

    start: Ints
    end: Ints
    role: exposed.Roles
    call: Indexes
    call_start: Ints
    call_end: Ints
    thread: Ints


@dataclass(frozen=True, slots=True)
class Pieces:
    """Stretches of idle time with one owner each, in order.

    Attributes:
        start: begins.
        end: ends.
        owner: codes into `OWNERS`.
        event: number of the event that says so; -1 for none.
        after: for Python: number of the event that had ended last before; -1 else.
    """

    start: Ints
    end: Ints
    owner: Codes
    event: Indexes
    after: Indexes

    def take(self, rows: Any) -> Pieces:
        """The rows that an index array or a mask picks."""
        return Pieces(self.start[rows], self.end[rows], self.owner[rows], self.event[rows], self.after[rows])


def idle(activities: Activities, windows: Spans, all_: Events, threads: dict[int, Thread]) -> Pieces:
    """Who owns the time in which one device did nothing.

    Args:
        activities: its activities.
        windows: the steps, merged.
        all_: what the host did.
        threads: timelines of the threads that may explain it, the most telling first.
    """
    busy = merge(activities.start, activities.end)
    gaps = subtract(windows, busy)
    if not len(gaps):
        return _pieces([])
    late = np.searchsorted(activities.start, gaps.end, side="left")
    called, call, call_start, call_end, thread = _launches(activities, late, gaps.end)
    begins = np.clip(call_start, gaps.start, gaps.end)
    stops = np.where(called, np.clip(np.maximum(call_end, call_start) + LATENCY_NS, begins, gaps.end), gaps.end)
    parts = [_before_launch(gaps.start, begins, thread, all_, threads)]
    parts += [_launching(begins, stops, called, call, all_, threads)]
    rest = stops < gaps.end
    parts += [_owned(stops[rest], gaps.end[rest], QUEUED, call[rest])]
    return _joined(_behind_waits(_pieces(parts), activities, busy, all_, threads))


def _launches(
    activities: Activities, late: Indexes, gap_end: Ints
) -> tuple[NDArray[np.bool_], Indexes, Ints, Ints, Ints]:
    """The launch call of the activity that ended each gap: known, event, begin, end, thread."""
    count = len(activities.start)
    exists = late < count
    row = np.minimum(late, max(count - 1, 0))
    called = exists & (activities.call_start[row] != MISSING)
    known = np.flatnonzero(activities.thread != MISSING)
    if len(known):
        behind = known[np.minimum(np.searchsorted(known, late), len(known) - 1)]
        thread = activities.thread[behind]
    else:
        thread = np.full(len(late), MISSING)
    call = np.where(called, activities.call[row], -1)
    return (
        called,
        call,
        np.where(called, activities.call_start[row], gap_end),
        np.where(called, activities.call_end[row], gap_end),
        thread,
    )


def _owned(start: Ints, end: Ints, owner: int | Codes, event: Indexes) -> Pieces:
    codes = np.broadcast_to(np.asarray(owner, np.int8), start.shape)
    return Pieces(start, end, codes, event, np.full(len(start), -1, np.intp))


def _pieces(parts: list[Pieces]) -> Pieces:
    """All pieces that are not empty, in order."""
    fields = ("start", "end", "owner", "event", "after")
    kinds = (np.int64, np.int64, np.int8, np.intp, np.intp)
    joined = [
        np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)]).astype(kind)
        for name, kind in zip(fields, kinds, strict=True)
    ]
    made = Pieces(*joined)
    filled = np.flatnonzero(made.end > made.start)
    return made.take(filled[np.argsort(made.start[filled], kind="stable")])


def _joined(pieces: Pieces) -> Pieces:
    """Neighbours with the same owner and evidence as one piece."""
    same = (pieces.end[:-1] == pieces.start[1:]) & (pieces.owner[:-1] == pieces.owner[1:])
    same &= (pieces.event[:-1] == pieces.event[1:]) & (pieces.after[:-1] == pieces.after[1:])
    first = np.append(True, ~same)[: len(pieces.start)]
    last = np.append(~same, True)[: len(pieces.start)]
    made = pieces.take(first)
    return Pieces(made.start, pieces.end[last], made.owner, made.event, made.after)


def _before_launch(start: Ints, end: Ints, thread: Ints, all_: Events, threads: dict[int, Thread]) -> Pieces:
    """Owners of the idle time before the late launch began: what the threads were doing."""
    parts = []
    for one in np.unique(thread):
        mine = np.flatnonzero((thread == one) & (end > start))
        order = [int(one), *(other for other in threads if other != one)] if int(one) in threads else list(threads)
        rest = (start[mine], end[mine])
        for number in order:
            said, rest = _said(rest, all_, threads[number])
            parts.append(said)
            if not len(rest[0]):
                break
        parts.append(_between_events(*rest, all_, [threads[number] for number in order]))
    return _pieces(parts)


def _said(rest: tuple[Ints, Ints], all_: Events, thread: Thread) -> tuple[Pieces, tuple[Ints, Ints]]:
    """What one thread's events explain of idle stretches, and the stretches that they do not."""
    start, end, _ = split(*rest, thread.edges)
    activity = thread.at(start)
    told = activity != host.NONE
    found = host.event_of(all_, thread, start[told], activity[told])
    return _owned(start[told], end[told], activity[told], found), (start[~told], end[~told])


def _between_events(start: Ints, end: Ints, all_: Events, order: list[Thread]) -> Pieces:
    """Python ran where a thread had come out of an operator and one went on afterwards; else nobody knows."""
    last, when = np.full(len(start), -1, np.intp), np.full(len(start), MISSING)
    for thread in order:
        if thread.operators:
            event, ended = host.last_ended(all_, thread, start)
            later = ended > when
            last, when = np.where(later, event, last), np.where(later, ended, when)
    following = np.full(len(start), -1, np.intp)
    for thread in order:
        following = np.where(following < 0, host.next_begun(thread, end), following)
    python = (last >= 0) & (following >= 0)
    owner = np.where(python, PYTHON, UNKNOWN).astype(np.int8)
    return Pieces(start, end, owner, np.where(python, following, -1), np.where(python, last, -1))


def _launching(
    start: Ints, end: Ints, called: NDArray[np.bool_], call: Indexes, all_: Events, threads: dict[int, Thread]
) -> Pieces:
    """Owners of launch latencies: the activity around the call's begin, else the launch itself."""
    rows = np.flatnonzero(called & (end > start))
    owner = np.full(len(rows), host.LAUNCH, np.int8)
    event = call[rows]
    known = event >= 0
    begun, thread = all_.start[event], all_.thread[event]
    for number, timeline in threads.items():
        here = np.flatnonzero(known & (thread == number))
        activity = timeline.at(begun[here])
        told = activity != host.NONE
        owner[here[told]] = activity[told]
    # a blocking copy that the device starts at once is a wait only while the call lasts; its latency stays with it
    return _owned(start[rows], end[rows], owner, event)


def _behind_waits(
    pieces: Pieces, activities: Activities, busy: Spans, all_: Events, threads: dict[int, Thread]
) -> Pieces:
    """Gives idle time behind a wait to the wait, as `waits` says."""
    found = [_waits(all_, thread) for thread in threads.values()]
    if not found or not len(pieces.start):
        return pieces
    start, end, activity, event = (np.concatenate(column) for column in zip(*found, strict=True))
    if not len(start):
        return pieces
    order = np.argsort(end, kind="stable")
    start, end, activity, event = start[order], end[order], activity[order], event[order]
    work = np.isin(pieces.owner, _WORK)
    mine = pieces.take(work)
    known = activities.call >= 0
    launched, returned = activities.call_start[known], activities.call_end[known]
    until = waiting.caught_up(end, launched, returned, activities.start[known], LEAD_NS)
    waits = waiting.Waits(start, end, activity == host.SYNC, until)
    lo, hi, origin, wait = waiting.charge(waits, busy, mine.start, mine.end, LEAD_NS)
    cut = mine.take(origin)
    waited = wait >= 0
    charged = Pieces(
        lo,
        hi,
        np.where(waited, activity[wait], cut.owner).astype(np.int8),
        np.where(waited, event[wait], cut.event),
        np.where(waited, -1, cut.after),
    )
    return _pieces([pieces.take(~work), charged])


def _waits(all_: Events, thread: Thread) -> tuple[Ints, Ints, Codes, Indexes]:
    """A thread's stretches of waiting: begins, ends, activities and events."""
    if len(thread.edges) < 2:
        empty = np.empty(0, np.int64)
        return empty, empty, np.empty(0, np.int8), np.empty(0, np.intp)
    start, end, activity = thread.edges[:-1], thread.edges[1:], thread.activity[:-1]
    rows = np.isin(activity, _WAITS)
    start, end, activity = start[rows], end[rows], activity[rows]
    return start, end, activity, host.event_of(all_, thread, start, activity)


def busy_shares(activities: Activities, start: Ints, end: Ints) -> dict[str, Ints]:
    """What a device did in each step: computing, exposed communication and exposed copies, in nanoseconds."""
    compute, communication, copies = exposed.unions(activities.start, activities.end, activities.role)
    work = covered(compute, start, end)
    shown = covered(union(compute, communication), start, end)
    busy = covered(union(compute, communication, copies), start, end)
    return {"compute": work, "communication": shown - work, "copies": busy - shown}


def cut_by_step(pieces: Pieces, start: Ints, end: Ints) -> tuple[Pieces, Indexes]:
    """The pieces cut at the steps' edges, and the number of the step that each lies in.

    Args:
        pieces: stretches within the steps.
        start: begins of the steps, ascending.
        end: their ends.
    """
    begins, stops, origin = split(pieces.start, pieces.end, np.unique(np.concatenate([start, end])))
    cut = pieces.take(origin)
    step = np.searchsorted(start, begins, side="right") - 1
    return Pieces(begins, stops, cut.owner, cut.event, cut.after), step


def windows(start: Ints, end: Ints) -> Spans:
    """The steps as one set."""
    return merge(start, end)
