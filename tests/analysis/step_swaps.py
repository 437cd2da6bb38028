"""The swap test: steps replayed with the durations of other steps, against the time that those took.

Giving a trace back unchanged proves little: every wrong edge is consistent with what it was made from. A step that gets
another's host times and kernel durations must take what that other took, through edges which that one did not supply.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudoctor.analysis.simulate import replay
from gpudoctor.analysis.simulate.edges import FEED, HAND, LAUNCH, PROGRAM, RUN
from gpudoctor.analysis.simulate.events import NONE
from gpudoctor.analysis.simulate.graph import Graph
from gpudoctor.analysis.simulate.points import CALL_END, CALL_START, STEP_END, STEP_START


@dataclass(frozen=True, slots=True)
class Swap:
    """Step `into` with the durations of step `taken`; times in nanoseconds."""

    into: int
    taken: int
    own_ns: float
    real_ns: float
    replayed_ns: float

    @property
    def error(self) -> float:
        return abs(self.replayed_ns / self.real_ns - 1)

    @property
    def naive(self) -> float:
        """The error of saying that the step takes what it took."""
        return abs(self.own_ns / self.real_ns - 1)


def swaps(graph: Graph, depth: int = 2) -> list[Swap]:
    """All pairs of steps that did the same, `depth` steps of them exchanged: what a step inherits comes along."""
    steps = [_points(graph, step) for step in range(len(graph.events.step))]
    signs = [{thread: _signs(graph, rows) for thread, rows in step.items()} for step in steps]
    length = graph.events.step_end - graph.events.step_start
    player, edges_of = replay.Player(graph), _Edges(graph)
    found = []
    for into in range(depth - 1, len(steps)):
        for taken in range(depth - 1, len(steps)):
            pairs = [(into - back, taken - back) for back in range(depth)]
            if into == taken or any(signs[a] != signs[b] for a, b in pairs):
                continue
            weight = graph.edges.constant.copy()
            for a, b in pairs:
                for thread, rows in steps[a].items():
                    edges_of.exchange(weight, rows, steps[b][thread])
            made = replay.step_times(graph, player.times(weight))
            found.append(Swap(into, taken, length[into], length[taken], made[into]))
    return found


def _points(graph: Graph, step: int) -> dict[int, list[int]]:
    events, made = graph.events, graph.points
    inside = (made.time >= events.step_start[step]) & (made.time <= events.step_end[step])
    found = {}
    for thread in (events.main, *events.autograd):
        rows = np.flatnonzero(inside & (made.thread == thread))
        found[thread] = [
            row for row in rows.tolist() if _name(graph, row) != "cudaEventQuery" and _of(graph, row, step)
        ]
    return found


def _of(graph: Graph, row: int, step: int) -> bool:
    """A mark of this step or no mark: the neighbours' lie on the same moments."""
    return graph.points.kind[row] not in (STEP_START, STEP_END) or graph.points.ref[row] == step


def _name(graph: Graph, row: int) -> str:
    if graph.points.kind[row] not in (CALL_START, CALL_END):
        return ""
    return graph.events.calls.texts[graph.events.calls.name[graph.points.ref[row]]]


def _signs(graph: Graph, rows: list[int]) -> list[tuple[int, str]]:
    return [(int(graph.points.kind[row]), _name(graph, row)) for row in rows]


class _Edges:
    """The edges of a graph by what they belong to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        kind, owner = graph.edges.kind, graph.edges.owner
        self._at = {
            wanted: {int(owner[row]): int(row) for row in np.flatnonzero(kind == wanted)}
            for wanted in (PROGRAM, HAND, FEED, LAUNCH, RUN)
        }
        self._launched: dict[int, list[int]] = {}
        for row, call in enumerate(graph.events.activities.call.tolist()):
            if call != NONE:
                self._launched.setdefault(call, []).append(row)

    def exchange(self, weight: np.ndarray, rows: list[int], taken: list[int]) -> None:
        """Gives the edges at some points, and of what they launch, the durations at others."""
        points = self.graph.points
        for a, b in zip(rows, taken, strict=True):
            handed = points.hand[a] != NONE, points.hand[b] != NONE
            if all(handed):
                weight[self._at[HAND][a]] = points.time[b] - points.time[points.hand[b]]
            elif a in self._at[FEED] or b in self._at[FEED]:  # a worker's pace is no part of the step's
                weight[self._at[PROGRAM][a]] = points.time[b] - points.time[b - 1]
                if a in self._at[FEED]:
                    weight[self._at[FEED][a]] = -np.inf
            elif not any(handed) and a in self._at[PROGRAM] and b in self._at[PROGRAM]:
                weight[self._at[PROGRAM][a]] = self.graph.edges.host[self._at[PROGRAM][b]]
            if points.kind[a] == CALL_END:
                self._launches(weight, int(points.ref[a]), int(points.ref[b]))

    def _launches(self, weight: np.ndarray, call: int, taken: int) -> None:
        ours, theirs = self._launched.get(call, []), self._launched.get(taken, [])
        if len(ours) != len(theirs):
            return
        edges = self.graph.edges
        for a, b in zip(ours, theirs, strict=True):
            weight[self._at[RUN][a]] = edges.constant[self._at[RUN][b]]
            if a in self._at[LAUNCH] and b in self._at[LAUNCH]:
                weight[self._at[LAUNCH][a]] += edges.host[self._at[LAUNCH][b]] - edges.host[self._at[LAUNCH][a]]
                inside = self.graph.begins.in_call
                if inside[a] and inside[b]:
                    weight[self._at[LAUNCH][a]] += self.graph.begins.latency[b] - self.graph.begins.latency[a]
