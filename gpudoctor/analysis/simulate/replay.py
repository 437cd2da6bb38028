"""Replays a graph: the time of every node, with the recorded weights or with those of an edit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudoctor.analysis.simulate.edges import PROGRAM, RUN
from gpudoctor.analysis.simulate.events import Floats, Ints
from gpudoctor.analysis.simulate.graph import Graph
from gpudoctor.analysis.simulate.points import STEP_END, STEP_START


@dataclass(frozen=True)
class _Layout:
    """What does not change between replays.

    A node with one edge has the time of that edge's source plus its weight, whatever an edit does, so it takes no part
    in the pass: most points of the host, and the end of each activity. The nodes that are left are *joints*.

    Attributes:
        head: by point: the point of its thread, itself or before it, that is a joint.
        led: by point: the edge that leads to it, where it is no joint; else -1.
        run: by activity: the edge from its begin to its end.
        joint: by node: number of the joint that its time follows.
        first: by joint: row of its first edge in `rows`.
        second: the same of its second edge; -1 without one.
        rows: the edges that lead to joints, by target.
        more: rows of further edges.
        target: of those the joint that they lead to.
    """

    head: Ints
    led: Ints
    run: Ints
    joint: Ints
    first: Ints
    second: Ints
    rows: Ints
    more: Ints
    target: Ints


def _layout(graph: Graph) -> _Layout:
    edges = graph.edges
    count = np.bincount(edges.target, minlength=graph.nodes)
    single = count[edges.target] == 1
    led = np.full(len(graph.points), -1, np.int64)
    rows = np.flatnonzero(single & (edges.kind == PROGRAM))
    led[edges.owner[rows]] = rows
    run = np.empty(len(graph.events.activities), np.int64)
    rows = np.flatnonzero(edges.kind == RUN)
    run[edges.owner[rows]] = rows
    points = np.arange(len(led))
    head = np.maximum.accumulate(np.where(led < 0, points, 0)) if len(led) else points
    follows = np.arange(graph.nodes)
    follows[graph.point_node] = graph.point_node[head]
    follows[graph.end_node] = graph.start_node
    joints = np.flatnonzero(follows == np.arange(graph.nodes))
    number = np.full(graph.nodes, -1, np.int64)
    number[joints] = np.arange(len(joints))
    kept = np.flatnonzero(number[edges.target] >= 0)
    target = number[edges.target[kept]]
    first = np.searchsorted(target, np.arange(len(joints)), side="left")
    last = np.searchsorted(target, np.arange(len(joints)), side="right")
    second = np.where(last - first >= 2, first + 1, -1)
    more = np.flatnonzero(np.arange(len(target)) - first[target] >= 2)
    return _Layout(head, led, run, number[follows], first, second, kept, more, target[more])


@dataclass(frozen=True)
class Player:
    """Replays one graph many times."""

    graph: Graph

    @cached_property
    def _layout(self) -> _Layout:
        return _layout(self.graph)

    def times(self, weight: Floats, source: Ints | None = None) -> Floats:
        """Time of each node in nanoseconds.

        Args:
            weight: of each edge; minus infinity takes the edge away.
            source: of each edge, where an edit has moved some; they must stay below their targets.
        """
        made, edges = self._layout, self.graph.edges
        behind = self._behind(weight)
        from_ = (edges.source if source is None else source)[made.rows]
        length = weight[made.rows] + behind[from_]
        return _passed(made, made.joint[from_], length)[made.joint] + behind

    def _behind(self, weight: Floats) -> Floats:
        """By node: how long after its joint it is."""
        graph, made = self.graph, self._layout
        behind = np.zeros(graph.nodes)
        if len(made.led):
            reached = np.cumsum(np.where(made.led >= 0, weight[np.maximum(made.led, 0)], 0.0))
            behind[graph.point_node] = reached - reached[made.head]
        behind[graph.end_node] = weight[made.run]
        return behind

    def anchored(self) -> Floats:
        """The recorded graph with each event's own latencies."""
        return self.times(self.graph.edges.anchored)

    def constant(self) -> Floats:
        """The recorded graph with the trace's constants."""
        return self.times(self.graph.edges.constant)


def _passed(made: _Layout, source: Ints, length: Floats) -> Floats:
    """Time of each joint: one pass in their order."""
    there = made.second >= 0
    second = np.where(there, made.second, 0)
    one = source[made.first[1:]].tolist(), length[made.first[1:]].tolist()
    two = np.where(there, source[second], 0)[1:].tolist(), np.where(there, length[second], -np.inf)[1:].tolist()
    rest = list(zip(made.target.tolist(), source[made.more].tolist(), length[made.more].tolist(), strict=True))
    rest.append((-1, 0, 0.0))
    rest.reverse()
    target, other, weight = rest.pop()
    times = [0.0]
    add = times.append
    for joint, (a, x, b, y) in enumerate(zip(*one, *two, strict=True), 1):
        late, early = times[a] + x, times[b] + y
        if late < early:
            early, late = late, early
        while joint == target:
            early = times[other] + weight
            if late < early:
                early, late = late, early
            target, other, weight = rest.pop()
        add(late)
    return np.array(times)


def step_times(graph: Graph, times: Floats) -> Floats:
    """Duration of each step on the loop's thread, in nanoseconds."""
    made = np.zeros(len(graph.events.step))
    for kind, sign in ((STEP_START, -1.0), (STEP_END, 1.0)):
        at = np.flatnonzero(graph.points.kind == kind)
        made[graph.points.ref[at]] += sign * times[graph.point_node[at]]
    return made


def finishing(graph: Graph) -> tuple[Ints, Ints]:
    """The nodes that end the work, and their stretches: ends of steps, and of device activities.

    What the host does later is no part of it: the profiler's own end, other threads at a pace of their own.
    """
    steps = np.flatnonzero(graph.points.kind == STEP_END)
    nodes = np.concatenate((graph.point_node[steps], graph.end_node))
    when = np.concatenate((graph.events.step_start[graph.points.ref[steps]], graph.events.activities.start))
    return nodes, graph.events.stretch(when)


def ends(graph: Graph, times: Floats) -> Floats:
    """When all work of each stretch of profiled steps is done, the device's included, in nanoseconds."""
    nodes, stretch = finishing(graph)
    made = np.full(len(graph.events.cuts), -np.inf)
    np.maximum.at(made, stretch, times[nodes])
    return made
