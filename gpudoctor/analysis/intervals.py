"""Interval algebra on int64 nanoseconds: half-open `[start, end)`, exact, vectorised.

An interval whose end is not after its start is empty: it covers nothing and changes nothing. A `Spans` is a set of
points as its shortest list of intervals: sorted, disjoint, none empty, none touching the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Spans:
    """A set of points in time.

    Attributes:
        start: first nanoseconds of its stretches, ascending.
        end: first nanoseconds behind them.
    """

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """How many nanoseconds it covers."""
        return int((self.end - self.start).sum())


NOTHING = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def ints(values: Any) -> Ints:
    """The values as an int64 array."""
    return np.asarray(values, dtype=np.int64)


def distinct(values: Ints) -> Ints:
    """The values in ascending order, each once (`np.unique` hashes first, which is slower on times)."""
    values = np.sort(values, kind="stable")
    return ints(values[np.append(True, values[1:] != values[:-1])[: len(values)]])


def merge(start: Ints, end: Ints) -> Spans:
    """The union of intervals in any order; those that touch become one."""
    start, end = ints(start), ints(end)
    filled = end > start
    if not filled.any():
        return NOTHING
    start, end = start[filled], end[filled]
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), np.bool_)
    first[1:] = start[1:] > reached[:-1]
    last = np.append(first[1:], True)
    return Spans(start[first], reached[last])


def union(*sets: Spans) -> Spans:
    """Points in any of the sets."""
    if not sets:
        return NOTHING
    return merge(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))


def intersect(a: Spans, b: Spans) -> Spans:
    """Points in both sets."""
    return _select(a, b, np.logical_and)


def subtract(a: Spans, b: Spans) -> Spans:
    """Points in `a` that are not in `b`."""
    return _select(a, b, np.greater)


def complement(spans: Spans, start: int, end: int) -> Spans:
    """Points of the window `[start, end)` that are not in the set."""
    return subtract(merge(ints([start]), ints([end])), spans)


def contains(spans: Spans, times: Ints) -> Mask:
    """Whether each time is in the set."""
    return locate(spans, times) >= 0


def locate(spans: Spans, times: Ints) -> NDArray[np.intp]:
    """Number of the stretch that each time is in; -1 for none."""
    at = np.searchsorted(spans.start, times, side="right") - 1
    if not len(spans):
        return at
    return np.where((at >= 0) & (ints(times) < spans.end[at]), at, -1)


def covered(spans: Spans, start: Ints, end: Ints) -> Ints:
    """How many nanoseconds of each interval `[start, end)` are in the set; 0 for empty ones.

    The intervals may overlap each other; a window is an interval like any other.
    """
    start, end = ints(start), ints(end)
    return np.where(end > start, _before(spans, end) - _before(spans, start), 0)


def split(start: Ints, end: Ints, edges: Ints) -> tuple[Ints, Ints, NDArray[np.intp]]:
    """Cuts intervals at points in time.

    Args:
        start: begins.
        end: ends, after the begins.
        edges: where to cut, ascending.

    Returns:
        Starts and ends of the pieces in order, and the number of the interval that each is a piece of.
    """
    start, end, edges = ints(start), ints(end), ints(edges)
    first = np.searchsorted(edges, start, side="right")
    inside = np.maximum(np.searchsorted(edges, end, side="left") - first, 0)
    origin = np.repeat(np.arange(len(start)), inside + 1)
    number = np.arange(len(origin)) - np.repeat(np.cumsum(inside + 1) - (inside + 1), inside + 1)
    begins, stops = start[origin], end[origin]
    if len(edges):
        at = first[origin] + number
        begins = np.where(number > 0, edges[np.maximum(at - 1, 0)], begins)
        stops = np.where(number < inside[origin], edges[np.minimum(at, len(edges) - 1)], stops)
    return begins, stops, origin


def first_come(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Makes intervals disjoint without losing a nanosecond: each belongs to the one that began first.

    Ties go to the earlier row. What is left of an interval is its tail, possibly empty.

    Returns:
        New starts and ends in the order given; their lengths add up to those of the union.
    """
    start, end = ints(start), np.maximum(ints(start), ints(end))
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])
    own = start.copy()
    own[order[1:]] = np.maximum(start[order[1:]], reached[:-1])
    return own, np.maximum(own, end)


def _before(spans: Spans, times: Ints) -> Ints:
    """How many nanoseconds of the set lie before each time."""
    if not len(spans):
        return np.zeros(len(times), np.int64)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(spans.end - spans.start)])
    at = np.searchsorted(spans.start, times, side="right")
    beyond = np.where(at > 0, np.maximum(spans.end[at - 1] - times, 0), 0)
    return np.asarray(sums[at] - beyond, dtype=np.int64)


def _select(a: Spans, b: Spans, keep: Callable[[Mask, Mask], Mask]) -> Spans:
    """Points chosen by whether they are in `a` and in `b`: constant between neighbouring ends of either."""
    edges = distinct(np.concatenate([a.start, a.end, b.start, b.end]))
    if not len(edges):
        return NOTHING
    start, end = edges[:-1], edges[1:]
    kept = keep(contains(a, start), contains(b, start))
    return merge(start[kept], end[kept])
