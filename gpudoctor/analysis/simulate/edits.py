"""Edits of a graph: what a fix takes away, shortens, merges, moves or no longer waits for, as weights of its edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpudoctor.analysis.simulate.edges import (
    AHEAD,
    CROSS,
    ENGINE,
    FEED,
    HAND,
    LAUNCH,
    PROGRAM,
    ROOM,
    RUN,
    SIDE,
    STREAM,
    WAIT,
)
from gpudoctor.analysis.simulate.events import NONE, Bools, Floats, Ints
from gpudoctor.analysis.simulate.graph import Graph

_ALL = 0.999

PINNED_NS = 5_000.0
"""What the call of an asynchronous copy from pinned memory takes the host at most."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """Stretches of a host thread's time of which a share goes.

    Attributes:
        thread: thread id of each.
        start: their begins, nanoseconds.
        end: their ends.
        share: of their time, 0 to 1.
    """

    thread: Ints
    start: Floats
    end: Floats
    share: float = 1.0


@dataclass(slots=True)
class Edit:
    """What becomes of the events.

    Attributes:
        host: host time that goes.
        scale: by activity: what remains of its duration.
        dropped: by activity: it is not launched.
        freed: by call: the host does not wait in it.
        moved: by activity: it runs on a stream of its own, and nothing on the device waits for it.
    """

    scale: Floats
    dropped: Bools
    freed: Bools
    moved: Bools
    host: list[HostTime] = field(default_factory=list)

    @classmethod
    def nothing(cls, graph: Graph) -> Edit:
        """An edit that changes nothing."""
        activities, calls = len(graph.events.activities), len(graph.events.calls)
        return cls(np.ones(activities), np.zeros(activities, bool), np.zeros(calls, bool), np.zeros(activities, bool))

    def and_also(self, other: Edit) -> Edit:
        """Both at once."""
        return Edit(
            np.minimum(self.scale, other.scale),
            self.dropped | other.dropped,
            self.freed | other.freed,
            self.moved | other.moved,
            [*self.host, *other.host],
        )

    def drop(self, graph: Graph, rows: Ints) -> None:
        """Takes activities away, with their launch calls."""
        self.dropped[rows] = True
        self._without_calls(graph, rows)

    def _without_calls(self, graph: Graph, rows: Ints) -> None:
        call = np.unique(graph.events.activities.call[rows])
        call = call[call != NONE]
        calls = graph.events.calls
        self.freed[call] = True
        self.host.append(HostTime(calls.thread[call], calls.start[call], calls.end[call]))

    def overlap(self, graph: Graph, rows: Ints) -> None:
        """Lets activities run beside the rest; a copy's call no longer waits, and is short."""
        self.moved[rows] = True
        activities, calls = graph.events.activities, graph.events.calls
        call = np.unique(activities.call[rows[activities.kind[rows] == 1]])
        call = call[call != NONE]
        self.freed[call] = True
        long = call[calls.end[call] - calls.start[call] > PINNED_NS]
        self.host.append(HostTime(calls.thread[long], calls.start[long] + PINNED_NS, calls.end[long]))


def weights(graph: Graph, edit: Edit, base: Floats | None = None) -> tuple[Floats, Ints]:
    """Weight and source of each edge under an edit.

    Args:
        graph: the graph.
        edit: the edit.
        base: weights without it; the anchored ones by default.
    """
    edges = graph.edges
    weight = (edges.anchored if base is None else base).copy()
    source = edges.source
    if edit.host:
        weight -= _host_part(graph, base) * _gone(graph, edit.host)
        _feed_earlier(graph, edit.host, weight)
    kind, owner = edges.kind, edges.owner
    activity = np.isin(kind, (LAUNCH, STREAM, CROSS, ROOM, RUN))
    if (edit.scale != 1.0).any():
        run = kind == RUN
        weight[run] *= edit.scale[owner[run]]
    if edit.dropped.any():
        mine = np.zeros(len(edges), bool)
        mine[activity] = edit.dropped[owner[activity]]
        weight[mine & np.isin(kind, (LAUNCH, STREAM, CROSS, RUN))] = 0.0  # a stream goes on waiting for events
        weight[mine & ((kind == ROOM) | ((kind == CROSS) & graph.inferred))] = -np.inf
    if edit.freed.any():
        waits = np.flatnonzero(kind == WAIT)
        weight[waits[edit.freed[graph.points.ref[owner[waits]]]]] = -np.inf
    if edit.moved.any():
        source = _move(graph, edit.moved, weight)
    return weight, source


def _host_part(graph: Graph, base: Floats | None) -> Floats:
    """The part of each weight that is the host's own time."""
    host = graph.edges.host
    if base is None:
        return host
    made = np.zeros(len(host))
    rows = host > 0
    made[rows] = np.maximum(host[rows] + base[rows] - graph.edges.anchored[rows], 0.0)
    return made


def _gone(graph: Graph, host: Sequence[HostTime]) -> Floats:
    """Share of each edge's host time that goes."""
    edges, made, calls = graph.edges, graph.points, graph.events.calls
    share = np.zeros(len(edges))
    rows = np.flatnonzero(edges.host > 0)
    launch = edges.kind[rows] == LAUNCH
    call = graph.events.activities.call[np.where(launch, edges.owner[rows], 0)] if len(calls) else rows * 0
    point = np.where(launch, 0, edges.owner[rows])
    hand = edges.kind[rows] == HAND
    program = edges.kind[rows] == PROGRAM
    end = made.time[point]
    start = np.where(hand, made.time[np.maximum(made.hand[point], 0)], made.time[np.maximum(point - 1, 0)])
    thread = made.thread[point]
    if len(calls):
        start, end = np.where(launch, calls.start[call], start), np.where(launch, calls.end[call], end)
        thread = np.where(launch, calls.thread[call], thread)
    gap = np.maximum(end - start, 1e-9)
    known = program | hand | launch
    for group in np.unique(np.concatenate([each.thread for each in host])).tolist():
        times, covered = _coverage(group, host)
        if not len(times):
            continue
        mine = np.flatnonzero((thread == group) & known)
        until = np.interp(end[mine], times, covered)
        since = np.interp(start[mine], times, covered)
        share[rows[mine]] = np.clip((until - since) / gap[mine], 0.0, 1.0)
    return share


def _feed_earlier(graph: Graph, host: Sequence[HostTime], weight: Floats) -> None:
    """Workers have a batch ready earlier by all the waiting that has gone so far; at once where all of it goes."""
    edges, made = graph.edges, graph.points
    rows = np.flatnonzero(edges.kind == FEED)
    times, covered = _coverage(graph.events.main, host) if len(rows) else (np.empty(0), np.empty(0))
    if not len(times):
        return
    ready, begun = made.time[edges.owner[rows]], made.time[edges.owner[rows] - 1]
    gone = np.interp(ready, times, covered) - np.interp(begun, times, covered)
    share = gone / np.maximum(ready - begun, 1.0)
    weight[rows] = np.where(share > _ALL, -np.inf, weight[rows] - np.cumsum(gone))


def _coverage(thread: int, host: Sequence[HostTime]) -> tuple[Floats, Floats]:
    """Times and the host time that has gone until each of them; stretches that overlap count once, the larger share."""
    parts = [(each.start[each.thread == thread], each.end[each.thread == thread], each.share) for each in host]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return np.empty(0), np.empty(0)
    times = np.unique(np.concatenate([np.concatenate(part[:2]) for part in parts]))
    share = np.zeros(len(times))
    for start, end, part in parts:
        change = np.zeros(len(times) + 1, np.int64)
        np.add.at(change, np.searchsorted(times, start), 1)
        np.add.at(change, np.searchsorted(times, end), -1)
        share = np.maximum(share, np.where(np.cumsum(change)[: len(times)] > 0, part, 0.0))
    covered = np.concatenate(([0.0], np.cumsum(np.diff(times) * share[:-1])))
    return times, covered


def _move(graph: Graph, moved: Bools, weight: Floats) -> Ints:
    """Sources of edges when activities run on a stream of their own, one behind the other; clears what waited for them.

    What followed one on its stream follows what was before it. The host still waits for it in calls that wait for the
    whole device, and so does the end of the run.
    """
    edges, begins = graph.edges, graph.begins
    source = edges.source.copy()
    before = _skipping(begins.before, moved)
    stream = np.flatnonzero(edges.kind == STREAM)
    owner = edges.owner[stream]
    theirs = stream[~moved[owner] & moved[edges.peer[stream]]]
    ahead = before[edges.owner[theirs]]
    source[theirs] = np.where(ahead != NONE, graph.end_node[np.maximum(ahead, 0)], 0)
    weight[theirs[ahead == NONE]] = -np.inf
    own = stream[moved[owner]]
    last = _same_side(graph, moved)
    ahead = last[edges.owner[own]]
    source[own] = np.where(ahead != NONE, graph.end_node[np.maximum(ahead, 0)], 0)
    weight[own[ahead == NONE]] = -np.inf
    across = np.flatnonzero(np.isin(edges.kind, (CROSS, ROOM)))
    weight[across[moved[edges.peer[across]]]] = -np.inf
    waits = np.flatnonzero(edges.kind == WAIT)
    held = waits[moved[edges.peer[waits]]]
    ahead = before[edges.peer[held]]
    source[held] = np.where(ahead != NONE, graph.end_node[np.maximum(ahead, 0)], 0)
    weight[held[ahead == NONE]] = -np.inf
    _hold_whole_device(graph, moved, weight, source)
    _copied_ahead(graph, moved, weight, source)
    engine = np.flatnonzero(edges.kind == ENGINE)
    weight[engine[moved[edges.peer[engine]] & ~moved[edges.owner[engine]]]] = graph.constants.gap
    lost = source >= edges.target
    weight[lost] = -np.inf
    return np.where(lost, 0, source)


def _hold_whole_device(graph: Graph, moved: Bools, weight: Floats, source: Ints) -> None:
    """Lets calls that wait for the whole device wait for what was moved and launched before them."""
    edges, activities, calls = graph.edges, graph.events.activities, graph.events.calls
    rows = np.flatnonzero(edges.kind == SIDE)
    launched = np.flatnonzero(moved & (activities.call != NONE))
    if not len(launched) or not len(rows):
        return
    begun = calls.start[activities.call[launched]]
    order = np.argsort(begun, kind="stable")
    call = graph.points.ref[edges.owner[rows]]
    at = np.searchsorted(begun[order], calls.start[call], side="right") - 1
    held = rows[at >= 0]
    source[held] = graph.end_node[launched[order[at[at >= 0]]]]
    waits = [graph.waits[int(each)] for each in call[at >= 0]]
    weight[held] = [wait.tail if wait.kind == "memory" or wait.tail else graph.tail for wait in waits]


def _copied_ahead(graph: Graph, moved: Bools, weight: Floats, source: Ints) -> None:
    """Lets what waited for a copy wait for that of the step before: copies beside a step are the next one's."""
    edges, activities, calls = graph.edges, graph.events.activities, graph.events.calls
    rows = np.flatnonzero(edges.kind == AHEAD)
    rows = rows[moved[edges.peer[rows]] & ~moved[edges.owner[rows]]]
    if not len(rows):
        return
    copies = np.flatnonzero(moved & (activities.kind == 1) & (activities.call != NONE))
    step = np.searchsorted(graph.events.step_start, calls.start[activities.call[copies]], side="right") - 1
    place = {int(copy): number for number, copy in enumerate(copies.tolist())}
    by_step = {number: copies[step == number].tolist() for number in np.unique(step).tolist()}
    for row in rows.tolist():
        number = place.get(int(edges.peer[row]))
        if number is None:
            continue
        ours, before = by_step[int(step[number])], by_step.get(int(step[number]) - 1)
        if before:
            at = ours.index(int(edges.peer[row])) if len(ours) == len(before) else -1
            source[row], weight[row] = graph.end_node[before[at]], graph.constants.gap


def _skipping(before: Ints, moved: Bools) -> Ints:
    """The nearest predecessor that is not moved."""
    made = before.copy()
    while True:
        again = (made != NONE) & moved[np.maximum(made, 0)]
        if not again.any():
            return made
        made[again] = before[made[again]]


def _same_side(graph: Graph, moved: Bools) -> Ints:
    """For each moved activity the moved one before it, on the same device and of the same kind."""
    activities = graph.events.activities
    made = np.full(len(activities), NONE, np.int64)
    rows = np.flatnonzero(moved)
    stretch = graph.events.stretch(activities.start)
    key = (activities.device[rows] * 4 + activities.kind[rows]) * (1 << 20) + stretch[rows]
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    made[rows[order[1:][same]]] = rows[order[:-1][same]]
    return made
