"""The critical path: the edges that the end of the work hangs on, and how much of it nothing explains."""

from __future__ import annotations

import numpy as np

from gpudoctor.analysis.simulate.events import Floats, Ints
from gpudoctor.analysis.simulate.graph import Graph
from gpudoctor.analysis.simulate.replay import finishing


def edges_to(graph: Graph, times: Floats, weight: Floats, node: int) -> Ints:
    """The edges that a node's time hangs on, in the order of time, from the origin on."""
    edges = graph.edges
    first = np.searchsorted(edges.target, np.arange(graph.nodes + 1), side="left").tolist()
    source, made, length = edges.source.tolist(), times.tolist(), weight.tolist()
    found = []
    while node > 0:
        at = max(range(first[node], first[node + 1]), key=lambda edge: made[source[edge]] + length[edge])
        found.append(at)
        node = source[at]
    return np.array(found[::-1], np.int64)


def last_nodes(graph: Graph, times: Floats) -> Ints:
    """Of each stretch of profiled steps the node that is done last."""
    nodes, stretch = finishing(graph)
    found = []
    for number in range(len(graph.events.cuts)):
        mine = nodes[stretch == number]
        if len(mine):
            found.append(int(mine[np.argmax(times[mine])]))
    return np.array(found, np.int64)


def opaque_share(graph: Graph, times: Floats) -> float:
    """Share of the profiled stretches' time that the critical path spends in waits which nothing explains, 0 to 1.

    Where the path begins at an activity without a recorded launch, all time up to that activity is of this kind.
    """
    unexplained = total = 0.0
    starts = graph.events.stretch_start.tolist()
    for start, node in zip(starts, last_nodes(graph, times).tolist(), strict=True):
        path = edges_to(graph, times, graph.edges.anchored, node)
        known = graph.edges.opaque[path]
        if graph.edges.source[path[0]] == 0:
            known[0] = max(0.0, known[0] - start)
        unexplained += float(known.sum())
        total += max(1.0, float(times[node]) - start)
    return min(1.0, max(0.0, unexplained / total)) if total else 0.0


def opaque_of_steps(graph: Graph, times: Floats) -> Floats:
    """By step: the waits on the critical path up to its end that nothing explains, ns."""
    events = graph.events
    made = np.zeros(len(events.step))
    for node in last_nodes(graph, times).tolist():
        path = edges_to(graph, times, graph.edges.anchored, node)
        unexplained = graph.edges.opaque[path]
        rows = np.flatnonzero(unexplained > 0)
        when = graph.time[graph.edges.target[path[rows]]]
        step = np.clip(np.searchsorted(events.step_start, when, side="right") - 1, 0, None)
        inside = np.maximum(np.minimum(unexplained[rows], when - events.step_start[step]), 0.0)
        np.add.at(made, step, inside)
    return made
