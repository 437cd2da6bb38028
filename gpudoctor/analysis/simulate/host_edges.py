"""Edges that lead to points of the host: the program's order, hand-overs, batches, waits, room in the launch queue."""

from __future__ import annotations

import re

import numpy as np

from gpudoctor.analysis.simulate.edges import FEED, HAND, ORIGIN, PROGRAM, QUEUE, SIDE, WAIT, Collected, Known
from gpudoctor.analysis.simulate.events import NONE, Ints
from gpudoctor.analysis.simulate.points import HANDOVER_NS, OP_END

_WHOLE_DEVICE = re.compile(r"(Device|Ctx)Synchronize|Free|Malloc")
"""Calls that wait for all streams."""

_FEED_OWN_NS = 100_000.0
_FEED_SHARE = 0.02
"""What a loop takes to get a batch that is ready, and in shares of the step (a large batch takes 1.4 ms to hand over in
a step of 126 ms): longer, and it waited for a worker."""

_QUEUE_SLACK = 8
"""Launches by which the driver's limit scatters."""


def add_host(edges: Collected) -> None:
    """Begins and ends of operators, calls and steps."""
    _threads(edges)
    _waits(edges)
    _queue(edges)


def _threads(edges: Collected) -> None:
    """Each thread in its order, and from one to the other where the work goes."""
    known = edges.known
    made = known.points
    rows = np.arange(len(made))
    handed = (made.hand != NONE) & (edges.stretch[np.maximum(made.hand, 0)] == edges.stretch)
    alone = rows[made.first & ~handed]
    edges.add(ORIGIN, np.zeros(len(alone), np.int64), 1 + alone, made.time[alone], alone)
    follows = rows[~made.first]
    gap = made.time[follows] - made.time[follows - 1]
    weight = np.where(handed[follows], np.minimum(gap, HANDOVER_NS), gap)
    own = np.full(len(made), np.inf)
    for call, wait in known.waits.items():
        own[edges.call_end[call]] = wait.own
    fed = _fed(known)
    own[fed] = _FEED_OWN_NS
    edges.add(FEED, np.zeros(len(fed), np.int64), 1 + fed, made.time[fed], fed)
    weight = np.minimum(weight, own[follows])
    edges.add(PROGRAM, follows, 1 + follows, weight, follows, host=weight)
    given = rows[handed]
    weight = made.time[given] - made.time[made.hand[given]]
    edges.add(HAND, 1 + made.hand[given], 1 + given, weight, given, host=weight)


def _fed(known: Known) -> Ints:
    """Points at which a wait for a worker's batch ends: a faster loop waits there longer, till the same time."""
    made, ranges = known.points, known.events.ranges
    rows = np.flatnonzero((made.kind == OP_END) & ~made.first)
    steps = known.events.step_end - known.events.step_start
    least = max(_FEED_OWN_NS, _FEED_SHARE * float(np.median(steps)))
    fed = ranges.fed[made.ref[rows]] & (ranges.end - ranges.start > least)[made.ref[rows]]
    return rows[fed]


def _waits(edges: Collected) -> None:
    """From what a call waited for to its return."""
    known = edges.known
    activities = known.events.activities
    rows = [
        (call, source, wait)
        for call, wait in known.waits.items()
        for source in wait.sources
        if edges.device_stretch[source] == edges.stretch[edges.call_end[call]]
    ]
    if not rows:
        return
    source = np.array([row[1] for row in rows], np.int64)
    point = edges.call_end[np.array([row[0] for row in rows], np.int64)]
    tail = np.array([wait.tail for _, _, wait in rows])
    sync = np.array([wait.kind == "sync" for _, _, wait in rows])
    usual = known.tail
    done = np.array([wait.kind == "done" for _, _, wait in rows])
    short = np.minimum(usual, [wait.own for _, _, wait in rows])
    tail = np.where(done & (tail == 0.0), short, tail)
    begun = np.array([wait.kind == "copy_start" for _, _, wait in rows])
    node = np.where(begun, edges.start, edges.end) + source
    constant = np.where(sync & (tail < 5 * usual + 20_000.0), usual, tail)
    slack = np.where(done, known.points.time[point] - activities.end[source], tail)
    edges.add(WAIT, node, 1 + point, np.minimum(tail, slack), point, constant=constant, peer=source)

    names = known.events.calls.texts
    whole = [call for call in known.waits if _WHOLE_DEVICE.search(names[known.events.calls.name[call]])]
    point = edges.call_end[np.array(whole, np.int64)]
    never = np.full(len(whole), -np.inf)
    edges.add(SIDE, np.zeros(len(whole), np.int64), 1 + point, never, point)


def _queue(edges: Collected) -> None:
    """A launch returns when the queue has room; an edge that the recording contradicts is left out."""
    known = edges.known
    activities, queue = known.events.activities, known.constants.queue + _QUEUE_SLACK
    later = known.order[queue:]
    earlier = known.order[: len(later)]
    call = activities.call[later]
    point = edges.call_end[call]
    free = np.array([int(row) not in known.waits for row in call], bool) if len(call) else np.empty(0, bool)
    fits = free & (activities.end[earlier] <= known.points.time[point])
    fits &= edges.device_stretch[earlier] == edges.stretch[point]
    point, earlier = point[fits], earlier[fits]
    edges.add(QUEUE, edges.end + earlier, 1 + point, np.zeros(len(point)), point, peer=earlier)
