"""Numbers the nodes of a graph so that every edge leads to a higher number, near the order of time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from gpudoctor.analysis.simulate.events import Bools, Floats, Ints

_ROUNDS = 100
"""Passes over all edges until nodes are numbered one by one: sound recordings take a few."""


def ordered(key: Floats, source: Ints, target: Ints, firm: Bools) -> tuple[Ints, Bools]:
    """Numbers of the nodes such that edges lead upwards, in the order of time where they leave a choice.

    Args:
        key: time of each node.
        source: of each edge.
        target: of each edge.
        firm: edges that never make a circle, and always stay; of others some are dropped where they make one.

    Returns:
        The number of each node, and which edges are kept.
    """
    raised = _raised(key, source, target)
    known = key if raised is None else raised
    place = _places(np.lexsort((np.arange(len(key)), known)))
    kept = place[source] < place[target]
    if kept.all():
        return place, kept
    rows = np.arange(len(source)) if raised is None else np.flatnonzero(known[source] == known[target])
    rank = _one_by_one(place, source[rows], target[rows], firm[rows])
    place = _places(np.lexsort((place, rank) if raised is None else (place, rank, known)))
    return place, place[source] < place[target]


def _places(order: Ints) -> Ints:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _raised(key: Floats, source: Ints, target: Ints) -> Floats | None:
    """Times of which no target's is before its source's; None where one late time would go a long way."""
    key = key.copy()
    for _ in range(_ROUNDS):
        short = np.flatnonzero(key[source] > key[target])
        if not len(short):
            return key
        np.maximum.at(key, target[short], key[source[short]])
    return None


def _one_by_one(place: Ints, source: Ints, target: Ints, firm: Bools) -> Ints:
    """By node its turn when each takes it once its sources have, the lowest place first; 0 without an edge.

    Where all that are left wait for each other, the lowest that waits for no firm edge takes its turn.
    """
    count = len(place)
    node = np.argsort(place).tolist()
    waits = np.bincount(target, minlength=count)
    held = np.bincount(target[firm], minlength=count)
    order = np.argsort(source, kind="stable")
    first = np.searchsorted(source[order], np.arange(count + 1)).tolist()
    leads, sure = target[order].tolist(), firm[order].tolist()
    involved = np.zeros(count, bool)
    involved[source] = involved[target] = True
    ready = place[involved & (waits == 0)].tolist()
    stuck = place[(held == 0) & (waits > 0)].tolist()
    heapify(ready)
    heapify(stuck)
    waiting, holding, at = waits.tolist(), held.tolist(), place.tolist()
    turn = [0] * count
    for number in range(1, int(involved.sum()) + 1):
        now = node[heappop(ready)] if ready else -1
        while now < 0 or turn[now]:
            now = node[heappop(stuck)]
        turn[now] = number
        for edge in range(first[now], first[now + 1]):
            led = leads[edge]
            waiting[led] -= 1
            holding[led] -= sure[edge]
            if turn[led]:
                continue
            if not waiting[led]:
                heappush(ready, at[led])
            elif sure[edge] and not holding[led]:
                heappush(stuck, at[led])
    return np.array(turn, np.int64)
