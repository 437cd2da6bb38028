"""The dependency graph of the profiled steps: what each point of a host thread and each device activity waited for.

A node's time is the latest of its edges' sources plus the edge's weight. Nodes are the points of the host's threads,
begin and end of each device activity, and one origin at time zero. Nodes are numbered so that every edge leads to a
higher number: one pass over them in that order gives all times (max-plus longest path, linear in the edges; Zhu et
al., Daydream, USENIX ATC 2020, replays kernels in the same way).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpudoctor.analysis.simulate.blocking import Wait, waits
from gpudoctor.analysis.simulate.constants import TAIL_NS, Constants, measure
from gpudoctor.analysis.simulate.device_edges import add_device
from gpudoctor.analysis.simulate.edges import FEED, LAUNCH, ORIGIN, PROGRAM, RUN, STREAM, Collected, Edges, Known
from gpudoctor.analysis.simulate.events import Bools, Events, Floats, Ints
from gpudoctor.analysis.simulate.host_edges import add_host
from gpudoctor.analysis.simulate.order import ordered
from gpudoctor.analysis.simulate.points import Points, points
from gpudoctor.analysis.simulate.streams import Begins, begins, launch_order, predecessors


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
    known = _known(events)
    edges = Collected(known)
    add_host(edges)
    add_device(edges)
    return _graph(known, edges)


def _known(events: Events) -> Known:
    activities, calls = events.activities, events.calls
    made = points(events)
    before = predecessors(activities, events.stretch(activities.start))
    order = launch_order(activities, calls)
    constants = measure(activities, calls, before, order)
    waited = waits(events, constants, order)
    started = begins(events, constants, before, {call for call, wait in waited.items() if wait.kind.startswith("copy")})
    late = np.array([wait.tail for wait in waited.values() if wait.kind == "sync"])
    return Known(events, made, started, waited, constants, order, tail=float(np.median(late)) if len(late) else TAIL_NS)


def _graph(known: Known, collected: Collected) -> Graph:
    """The graph with its nodes in the order of a replay."""
    edges, guessed, inferred = collected.columns()
    activities, made = known.events.activities, known.points
    time = np.concatenate(([0.0], made.time, activities.start, activities.end))
    # an end is known as soon as its begin is
    key = np.concatenate(([-np.inf], made.time, activities.start, activities.start))
    firm = np.isin(edges.kind, (PROGRAM, RUN, LAUNCH, ORIGIN, FEED, STREAM))
    position, kept = ordered(key, edges.source, edges.target, firm)
    lost = _without_source(edges.target[kept], len(time))
    # a later activity of a graph launch that is the first on its stream: its launch is not in the graph
    more = Edges.from_origin(lost, time[lost])
    edges = edges.and_also(more)
    guessed, inferred = (np.append(column, np.zeros(len(more), bool)) for column in (guessed, inferred))
    kept = np.append(kept, np.ones(len(more), bool))
    source, target = position[edges.source], position[edges.target]
    order = np.flatnonzero(kept)[np.lexsort((edges.kind[kept], target[kept]))]
    moved = np.empty(len(time))
    moved[position] = time
    return Graph(
        known.events, made, known.begins, known.waits, known.constants,
        edges=replace(edges, source=source, target=target).at(order),
        point_node=position[1 : collected.start],
        start_node=position[collected.start : collected.end],
        end_node=position[collected.end :],
        time=moved,
        guessed=guessed[order],
        inferred=inferred[order],
        call_start=collected.call_start,
        call_end=collected.call_end,
        tail=known.tail,
    )  # fmt: skip


def _without_source(target: Ints, nodes: int) -> Ints:
    """Nodes that no edge leads to, but the origin."""
    return 1 + np.flatnonzero(np.bincount(target, minlength=nodes)[1:] == 0)
