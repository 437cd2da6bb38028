"""Numbers the nodes of a graph so that every edge leads to a higher number, near the order of time."""

from __future__ import annotations

import numpy as np

from gpudoctor.analysis.simulate.events import Bools, Floats, Ints


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
