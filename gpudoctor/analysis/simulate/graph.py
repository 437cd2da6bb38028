"""The dependency graph of the profiled steps: what each point of a host thread and each device activity waited for.

A node's time is the latest of its edges' sources plus the edge's weight. Nodes are the points of the host's threads,
begin and end of each device activity, and one origin at time zero. Nodes are numbered so that every edge leads to a
higher number: one pass over them in that order gives all times (max-plus longest path, linear in the edges; Zhu et
al., Daydream, USENIX ATC 2020, replays kernels in the same way).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpudoctor.analysis.simulate.blocking import Wait, waits
from gpudoctor.analysis.simulate.constants import QUEUE as QUEUE_LENGTH
from gpudoctor.analysis.simulate.constants import TAIL_NS, Constants, measure
from gpudoctor.analysis.simulate.events import NONE, Bools, Events, Floats, Ints
from gpudoctor.analysis.simulate.points import CALL_END, CALL_START, HANDOVER_NS, OP_END, Points, points
from gpudoctor.analysis.simulate.streams import OPAQUE_NS, Begins, begins, launch_order, predecessors

ORIGIN, PROGRAM, HAND, FEED, WAIT, SIDE, QUEUE, LAUNCH, STREAM, CROSS, ROOM, RUN, AHEAD, ENGINE = range(14)
"""Kinds of edges: a fixed time; the thread's order; the other thread's hand-over; when a worker process had a batch
ready; what a call waits for; what would be waited for were it moved to a stream of its own (without weight until it
is); room in the launch queue; launch to begin; end to begin on a stream; across streams; room on the device; begin to
end; what would wait for a copy of the step before, were copies made ahead, and which copy would come before another in
the one engine of their direction (both without weight until copies are moved)."""

_WHOLE_DEVICE = re.compile(r"(Device|Ctx)Synchronize|Free|Malloc")
"""Calls that wait for all streams."""

_CERTAIN_NS = 5_000.0
"""An activity that begins this soon after another's end waited for it, also where no call says so."""

_FEED_OWN_NS = 100_000.0
_FEED_SHARE = 0.02
"""What a loop takes to get a batch that is ready, and in shares of the step (a large batch takes 1.4 ms to hand over in
a step of 126 ms): longer, and it waited for a worker."""

_QUEUE_SLACK = 8
"""Launches by which the driver's limit scatters."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges by target, in nanoseconds.

    Attributes:
        source: node.
        target: node.
        anchored: weight, with the event's own latencies.
        constant: weight, with the trace's constants.
        kind: one of the numbers above.
        owner: row of what the edge belongs to: the point for edges between host points and for waits, else the
            activity that it leads to.
        peer: row of the activity it comes from; `NONE` otherwise.
        host: part of the weight that is the host's own time.
        opaque: part of the weight that nothing explains.
    """

    source: Ints
    target: Ints
    anchored: Floats
    constant: Floats
    kind: Ints
    owner: Ints
    peer: Ints
    host: Floats
    opaque: Floats

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph, and what it was made of.

    Attributes:
        events: the events.
        points: host points.
        begins: what activities hung on.
        waits: what calls waited for, by row of the call.
        constants: the trace's.
        edges: see there.
        point_node: node of each point.
        start_node: node of each activity's begin.
        end_node: node of each activity's end.
        time: recorded time of each node.
        guessed: edges that only the times suggest, and that could be otherwise.
        inferred: edges that only the times suggest.
        call_start: point of each call's begin.
        call_end: point of each call's end.
        tail: usual time from the end of what a synchronisation waited for to its return, ns.
    """

    events: Events
    points: Points
    begins: Begins
    waits: dict[int, Wait]
    constants: Constants
    edges: Edges
    point_node: Ints
    start_node: Ints
    end_node: Ints
    time: Floats
    guessed: Bools
    inferred: Bools
    call_start: Ints
    call_end: Ints
    tail: float

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.time)


def build(events: Events) -> Graph:
    """The graph of the profiled steps."""
    activities, calls = events.activities, events.calls
    made = points(events)
    before = predecessors(activities, events.stretch(activities.start))
    order = launch_order(activities, calls)
    constants = measure(activities, calls, before, order)
    waited = waits(events, constants, order)
    started = begins(events, constants, before, {call for call, wait in waited.items() if wait.kind.startswith("copy")})
    builder = _Builder(events, made, started, waited, constants, order)
    builder.add_host()
    builder.add_waits()
    builder.add_queue()
    builder.add_device()
    return builder.graph()


class _Builder:
    """Collects edges between nodes in their first numbering: origin, points, begins, ends."""

    def __init__(
        self, events: Events, made: Points, started: Begins, waited: dict[int, Wait], constants: Constants, order: Ints
    ) -> None:
        self.events, self.points, self.begins = events, made, started
        self.waits, self.constants, self.order = waited, constants, order
        self.start = 1 + len(made)
        self.end = self.start + len(events.activities)
        calls = len(events.calls)
        self.call_start, self.call_end = np.full(calls, NONE, np.int64), np.full(calls, NONE, np.int64)
        for kind, rows in ((CALL_START, self.call_start), (CALL_END, self.call_end)):
            at = np.flatnonzero(made.kind == kind)
            rows[made.ref[at]] = at
        self.stretch = events.stretch(made.time)
        self.device_stretch = events.stretch(events.activities.start)
        late = np.array([wait.tail for wait in waited.values() if wait.kind == "sync"])
        self.tail = float(np.median(late)) if len(late) else TAIL_NS
        self._parts: list[tuple[Ints, Ints, Floats, Floats, Ints, Ints, Ints, Floats, Floats, Bools, Bools]] = []

    def _add(
        self,
        kind: int,
        source: Ints,
        target: Ints,
        anchored: Floats,
        owner: Ints,
        *,
        constant: Floats | None = None,
        peer: Ints | None = None,
        host: Floats | None = None,
        opaque: Floats | None = None,
        guessed: bool = False,
        inferred: bool = False,
    ) -> None:
        count = len(source)
        zero = np.zeros(count)
        self._parts.append(
            (
                source,
                target,
                anchored,
                anchored if constant is None else constant,
                np.full(count, kind, np.int64),
                owner,
                np.full(count, NONE, np.int64) if peer is None else peer,
                zero if host is None else host,
                zero if opaque is None else opaque,
                np.full(count, guessed),
                np.full(count, guessed or inferred),
            )
        )

    # -- the host ------------------------------------------------------------------------------------------------

    def add_host(self) -> None:
        """Each thread in its order, and from one to the other where the work goes."""
        made = self.points
        rows = np.arange(len(made))
        handed = (made.hand != NONE) & (self.stretch[np.maximum(made.hand, 0)] == self.stretch)
        alone = rows[made.first & ~handed]
        self._add(ORIGIN, np.zeros(len(alone), np.int64), 1 + alone, made.time[alone], alone)
        follows = rows[~made.first]
        gap = made.time[follows] - made.time[follows - 1]
        weight = np.where(handed[follows], np.minimum(gap, HANDOVER_NS), gap)
        own = np.full(len(made), np.inf)
        for call, wait in self.waits.items():
            own[self.call_end[call]] = wait.own
        fed = self._fed()
        own[fed] = _FEED_OWN_NS
        self._add(FEED, np.zeros(len(fed), np.int64), 1 + fed, made.time[fed], fed)
        weight = np.minimum(weight, own[follows])
        self._add(PROGRAM, follows, 1 + follows, weight, follows, host=weight)
        given = rows[handed]
        weight = made.time[given] - made.time[made.hand[given]]
        self._add(HAND, 1 + made.hand[given], 1 + given, weight, given, host=weight)

    def _fed(self) -> Ints:
        """Points at which a wait for a worker's batch ends: a faster loop waits there longer, till the same time."""
        made, ranges = self.points, self.events.ranges
        rows = np.flatnonzero((made.kind == OP_END) & ~made.first)
        steps = self.events.step_end - self.events.step_start
        least = max(_FEED_OWN_NS, _FEED_SHARE * float(np.median(steps)))
        fed = ranges.fed[made.ref[rows]] & (ranges.end - ranges.start > least)[made.ref[rows]]
        return rows[fed]

    def add_waits(self) -> None:
        """From what a call waited for to its return."""
        activities = self.events.activities
        rows = [
            (call, source, wait)
            for call, wait in self.waits.items()
            for source in wait.sources
            if self.device_stretch[source] == self.stretch[self.call_end[call]]
        ]
        if not rows:
            return
        source = np.array([row[1] for row in rows], np.int64)
        point = self.call_end[np.array([row[0] for row in rows], np.int64)]
        tail = np.array([wait.tail for _, _, wait in rows])
        sync = np.array([wait.kind == "sync" for _, _, wait in rows])
        usual = self.tail
        done = np.array([wait.kind == "done" for _, _, wait in rows])
        short = np.minimum(usual, [wait.own for _, _, wait in rows])
        tail = np.where(done & (tail == 0.0), short, tail)
        begun = np.array([wait.kind == "copy_start" for _, _, wait in rows])
        node = np.where(begun, self.start, self.end) + source
        constant = np.where(sync & (tail < 5 * usual + 20_000.0), usual, tail)
        slack = np.where(done, self.points.time[point] - activities.end[source], tail)
        self._add(WAIT, node, 1 + point, np.minimum(tail, slack), point, constant=constant, peer=source)

        names = self.events.calls.texts
        whole = [call for call in self.waits if _WHOLE_DEVICE.search(names[self.events.calls.name[call]])]
        point = self.call_end[np.array(whole, np.int64)]
        never = np.full(len(whole), -np.inf)
        self._add(SIDE, np.zeros(len(whole), np.int64), 1 + point, never, point)

    def add_queue(self) -> None:
        """A launch returns when the queue has room; an edge that the recording contradicts is left out."""
        activities, queue = self.events.activities, self.constants.queue + _QUEUE_SLACK
        later = self.order[queue:]
        earlier = self.order[: len(later)]
        call = activities.call[later]
        point = self.call_end[call]
        free = np.array([int(row) not in self.waits for row in call], bool) if len(call) else np.empty(0, bool)
        fits = free & (activities.end[earlier] <= self.points.time[point])
        fits &= self.device_stretch[earlier] == self.stretch[point]
        point, earlier = point[fits], earlier[fits]
        self._add(QUEUE, self.end + earlier, 1 + point, np.zeros(len(point)), point, peer=earlier)

    # -- the device ----------------------------------------------------------------------------------------------

    def add_device(self) -> None:
        """Begins and ends of activities."""
        activities, started = self.events.activities, self.begins
        rows = np.arange(len(activities))
        launched = activities.call != NONE
        led = inherited(started.before, launched, activities.lane) & (started.before != NONE)
        fixed = rows[~launched & ~led]
        self._add(
            ORIGIN, np.zeros(len(fixed), np.int64), self.start + fixed, activities.start[fixed], fixed,
            opaque=activities.start[fixed],
        )  # fmt: skip
        self._launches(rows[launched & (activities.node == 0)])
        behind = rows[started.before != NONE]
        ours = launched[behind]
        ahead = started.before[behind]
        seen = np.where(led[behind], activities.start[behind] - activities.end[ahead], 0.0)
        extra = started.extra[behind] * ours
        opaque = np.where(seen > OPAQUE_NS, seen, started.opaque[behind] * ours)
        gap = np.where(ours, started.gap[behind], seen)
        usual = np.where(activities.node[behind] > 0, self.constants.graph_gap, self.constants.gap)
        usual = np.where(ours, usual, seen)
        self._add(
            STREAM, self.end + ahead, self.start + behind, gap + extra, behind,
            constant=np.where(ours, usual + opaque, usual), peer=ahead, opaque=opaque,
        )  # fmt: skip
        copied = behind[activities.kind[ahead] == 1]
        never = np.full(len(copied), -np.inf)
        self._add(
            AHEAD, np.zeros(len(copied), np.int64), self.start + copied, never, copied, peer=started.before[copied]
        )
        self._engines()
        self._across(CROSS, started.waited)
        near = started.cross_gap <= _CERTAIN_NS
        self._across(CROSS, [pair for pair in started.guessed if near[pair[0]]], inferred=True)
        self._across(CROSS, [pair for pair in started.guessed if not near[pair[0]]], guessed=True)
        self._room()
        length = activities.end - activities.start
        self._add(RUN, self.start + rows, self.end + rows, length, rows)

    def _engines(self) -> None:
        """From each copy to the next in its direction: a device copies one at a time in each."""
        activities = self.events.activities
        rows = np.flatnonzero((activities.direction > 0) & (activities.call != NONE))
        key = activities.device[rows] * 16 + activities.direction[rows]
        order = np.lexsort((self.events.calls.start[activities.call[rows]], key)) if len(rows) else rows
        rows, key = rows[order], key[order]
        same = (key[1:] == key[:-1]) & (self.device_stretch[rows][1:] == self.device_stretch[rows][:-1])
        earlier, later = rows[:-1][same], rows[1:][same]
        never = np.full(len(later), -np.inf)
        self._add(ENGINE, self.end + earlier, self.start + later, never, later, peer=earlier)

    def _launches(self, rows: Ints) -> None:
        activities, calls, started = self.events.activities, self.events.calls, self.begins
        call = activities.call[rows]
        extra, opaque = started.extra[rows], started.opaque[rows]
        usual = np.where(started.in_call[rows], started.latency[rows], self.constants.latency[activities.kind[rows]])
        at_end = started.at_end[rows]
        point = np.where(at_end, self.call_end[call], self.call_start[call])
        typical = self.constants.typical[calls.name[call]] if len(call) else np.empty(0)
        submit = np.where(at_end, 0.0, np.minimum(calls.end[call] - calls.start[call], typical))
        self._add(
            LAUNCH, 1 + point, self.start + rows, submit + started.latency[rows] + extra, rows,
            constant=submit + usual + opaque, host=submit, opaque=opaque,
        )  # fmt: skip

    def _across(
        self, kind: int, pairs: list[tuple[int, int]], *, guessed: bool = False, inferred: bool = False
    ) -> None:
        pairs = [pair for pair in pairs if self.device_stretch[pair[0]] == self.device_stretch[pair[1]]]
        if not pairs:
            return
        row, source = np.array(pairs, np.int64).T
        started = self.begins
        gap, extra, opaque = started.cross_gap[row], started.extra[row], started.opaque[row]
        self._add(
            kind, self.end + source, self.start + row, gap + extra, row,
            constant=gap + opaque, peer=source, opaque=opaque, guessed=guessed, inferred=inferred,
        )  # fmt: skip

    def _room(self) -> None:
        if not self.begins.room:
            return
        row = np.array([row for row, _, _ in self.begins.room], np.int64)
        source = np.array([source for _, source, _ in self.begins.room], np.int64)
        offset = np.array([offset for _, _, offset in self.begins.room])
        self._add(ROOM, self.end + source, self.start + row, offset, row, peer=source, guessed=True)

    # -- together ------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """The graph with its nodes in the order of a replay."""
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        source, target, anchored, constant, kind, owner, peer, host, opaque, guessed, inferred = columns
        activities = self.events.activities
        time = np.concatenate(([0.0], self.points.time, activities.start, activities.end))
        # an end is known as soon as its begin is
        key = np.concatenate(([-np.inf], self.points.time, activities.start, activities.start))
        position, kept = ordered(key, source, target, np.isin(kind, (PROGRAM, RUN, LAUNCH, ORIGIN, FEED, STREAM)))
        if len(lost := _without_source(target[kept], len(time))):
            # its launch is not in the graph: a later activity of a graph launch that is the first on its stream
            added = len(lost)
            source, target = np.append(source, np.zeros(added, np.int64)), np.append(target, lost)
            anchored, constant, opaque = (np.append(column, time[lost]) for column in (anchored, constant, opaque))
            kind, owner = np.append(kind, np.full(added, ORIGIN)), np.append(owner, np.full(added, NONE))
            peer, host = np.append(peer, np.full(added, NONE)), np.append(host, np.zeros(added))
            guessed, inferred = (np.append(column, np.zeros(added, bool)) for column in (guessed, inferred))
            kept = np.append(kept, np.ones(added, bool))
        source, target = position[source], position[target]
        order = np.flatnonzero(kept)[np.lexsort((kind[kept], target[kept]))]
        edges = Edges(
            source[order], target[order], anchored[order], constant[order], kind[order], owner[order], peer[order],
            host[order], opaque[order],
        )  # fmt: skip
        moved = np.empty(len(time))
        moved[position] = time
        return Graph(
            self.events, self.points, self.begins, self.waits, self.constants, edges,
            point_node=position[1 : self.start],
            start_node=position[self.start : self.end],
            end_node=position[self.end :],
            time=moved,
            guessed=guessed[order],
            inferred=inferred[order],
            call_start=self.call_start,
            call_end=self.call_end,
            tail=self.tail,
        )  # fmt: skip


def inherited(before: Ints, launched: Bools, lane: Ints) -> Bools:
    """Activities that were launched before the recording began: no launch of any before them on their stream is known.

    They are work that the profiled steps inherit, at most as much as the launch queue holds; a pause between them
    stays unexplained. A missing launch further on, or a stream without any launch, is a gap in the recording.
    """
    found = ~launched
    for row in np.flatnonzero(found & (before != NONE)).tolist():  # a predecessor has a lower row
        found[row] = found[before[row]]
    for stream in np.unique(lane[found]).tolist():
        mine = lane == stream
        if not launched[mine].any() or int(found[mine].sum()) > QUEUE_LENGTH:
            found[mine] = False
    return found


def _without_source(target: Ints, nodes: int) -> Ints:
    """Nodes that no edge leads to, but the origin."""
    return 1 + np.flatnonzero(np.bincount(target, minlength=nodes)[1:] == 0)


def ordered(key: Floats, source: Ints, target: Ints, firm: Bools) -> tuple[Ints, Bools]:
    """Numbers of the nodes such that edges lead upwards, in the order of time where they leave a choice.

    Args:
        key: time of each node.
        source: of each edge.
        target: of each edge.
        firm: edges that never make a circle; others are dropped when they do.

    Returns:
        The number of each node, and which edges are kept.
    """
    key = key.copy()
    kept = np.ones(len(source), bool)
    _raise(key, source, target, firm, kept)
    natural = np.arange(len(key), dtype=np.float64)
    rank = np.zeros(len(key))
    tied = key[source] == key[target]
    order = np.lexsort((natural, key))
    place = np.empty(len(key), np.int64)
    place[order] = np.arange(len(key))
    wrong = tied & (place[source] >= place[target])
    if wrong.any():
        rows = np.flatnonzero(tied)
        keep = np.ones(len(rows), bool)
        _raise(rank, source[rows], target[rows], firm[rows], keep, strictly=True)
        kept[rows] &= keep
        order = np.lexsort((natural, rank, key))
        place[order] = np.arange(len(key))
    return place, kept & (place[source] < place[target])


_ROUNDS = 3000


def _raise(key: Floats, source: Ints, target: Ints, firm: Bools, kept: Bools, *, strictly: bool = False) -> None:
    """Raises targets to their sources (above them: `strictly`), and drops edges where that does not end."""
    step = 1.0 if strictly else 0.0
    rows = np.flatnonzero(kept)
    for turn in range(2 * _ROUNDS):
        short = rows[key[source[rows]] + step > key[target[rows]]]
        if not len(short):
            return
        if turn >= _ROUNDS:
            loose = short[~firm[short]]
            kept[loose if len(loose) else short] = False
            rows = np.flatnonzero(kept)
            continue
        np.maximum.at(key, target[short], key[source[short]] + step)
