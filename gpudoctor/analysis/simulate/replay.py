"""Replays a graph: the time of every node, with the recorded weights or with those of an edit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudoctor.analysis.simulate.events import Floats, Ints
from gpudoctor.analysis.simulate.graph import Graph
from gpudoctor.analysis.simulate.points import STEP_END, STEP_START


@dataclass(frozen=True)
class Player:
    """Replays one graph many times: what does not change is laid out once."""

    graph: Graph

    @cached_property
    def _layout(self) -> tuple[Ints, Ints, Ints]:
        """Of each node the first edge, the second (or -1), and the edges beyond the second, by target."""
        target = self.graph.edges.target
        first = np.searchsorted(target, np.arange(self.graph.nodes), side="left")
        last = np.searchsorted(target, np.arange(self.graph.nodes), side="right")
        second = np.where(last - first >= 2, first + 1, -1)
        place = np.arange(len(target)) - first[target]
        return first, second, np.flatnonzero(place >= 2)

    def times(self, weight: Floats, source: Ints | None = None) -> Floats:
        """Time of each node in nanoseconds.

        Args:
            weight: of each edge; minus infinity takes the edge away.
            source: of each edge, where an edit has moved some; they must stay below their targets.
        """
        first, second, more = self._layout
        edges = self.graph.edges
        source = edges.source if source is None else source
        there = second >= 0
        other = np.where(there, second, 0)
        one = source[first[1:]].tolist(), weight[first[1:]].tolist()
        two = np.where(there, source[other], 0)[1:].tolist(), np.where(there, weight[other], -np.inf)[1:].tolist()
        rest = list(zip(edges.target[more].tolist(), source[more].tolist(), weight[more].tolist(), strict=True))
        rest.append((-1, 0, 0.0))
        rest.reverse()
        following = rest.pop()
        made = [0.0]
        add = made.append
        at = following[0]
        for node, (a, x, b, y) in enumerate(zip(*one, *two, strict=True), 1):
            early, late = made[a] + x, made[b] + y
            late = max(late, early)
            while node == at:
                early = made[following[1]] + following[2]
                late = max(late, early)
                following = rest.pop()
                at = following[0]
            add(late)
        return np.array(made)

    def anchored(self) -> Floats:
        """The recorded graph with each event's own latencies."""
        return self.times(self.graph.edges.anchored)

    def constant(self) -> Floats:
        """The recorded graph with the trace's constants."""
        return self.times(self.graph.edges.constant)


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
