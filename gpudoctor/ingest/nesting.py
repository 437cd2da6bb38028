"""Which call encloses which, for the calls of many threads at once: on arrays, in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]

NOBODY = -1
_CHUNK = 1 << 16  # rows turned into Python integers at a time: they take ten times the memory of an array


@dataclass(slots=True)
class Tree:
    """Calls in the order of `order`, each with the call around it.

    Attributes:
        order: rows of the given arrays, by thread, then begin, then longest first.
        start_ns, end_ns, thread: in that order.
        parent: position of the innermost enclosing call in that order; -1 for none.
        depth: number of enclosing calls.
        overlapping: calls that end after the call around them: nested wrongly by the recorder.
    """

    order: Ints
    start_ns: Ints
    end_ns: Ints
    thread: NDArray[np.int32]
    parent: Rows
    depth: NDArray[np.int16]
    overlapping: int = 0

    def levels(self) -> Iterator[Ints]:
        """Positions by depth, from depth 1 on: what a call takes over from its parent is ready when it is reached."""
        by_depth = np.argsort(self.depth, kind="stable")
        counts = np.bincount(self.depth)
        bounds = np.cumsum(counts)
        for depth in range(1, len(counts)):
            yield by_depth[bounds[depth - 1] : bounds[depth]]

    def inherit(self, own: NDArray[np.int32]) -> NDArray[np.int32]:
        """Each call's own value, or that of the nearest call around it that has one; -1 for none."""
        made = own.copy()
        for rows in self.levels():
            given = made[rows]
            made[rows] = np.where(given < 0, made[self.parent[rows]], given)
        return made

    def self_ns(self) -> Ints:
        """Time of each call without the calls inside it."""
        inside = np.flatnonzero(self.parent >= 0)
        parent = self.parent[inside]
        taken = np.zeros(len(self.order), np.int64)
        np.add.at(taken, parent, np.minimum(self.end_ns[inside], self.end_ns[parent]) - self.start_ns[inside])
        left: Ints = np.maximum(self.end_ns - self.start_ns - taken, 0)
        return left

    def enclosing(self, thread: NDArray[np.int32], start_ns: Ints, end_ns: Ints) -> Rows:
        """Position of the innermost call here that encloses each given call's beginning; -1 for none."""
        made = np.full(len(thread), NOBODY, np.int32)
        if not len(self.order):
            return made
        for number in np.unique(thread):
            first, last = np.searchsorted(self.thread, (number, number + 1))
            mine = np.flatnonzero(thread == number)
            at = np.searchsorted(self.start_ns[first:last], start_ns[mine], side="right") - 1 + first
            at = np.where(at < first, NOBODY, at).astype(np.int32)
            while True:
                # what had ended by then, or begins with the call and is shorter, does not enclose it
                out = (at >= 0) & (
                    (self.end_ns[at] <= start_ns[mine])
                    | ((self.start_ns[at] == start_ns[mine]) & (self.end_ns[at] < end_ns[mine]))
                )
                if not out.any():
                    break
                at = np.where(out, self.parent[at], at)
            made[mine] = at
        return made


def nest(start_ns: Ints, dur_ns: Ints, thread: NDArray[np.int32]) -> Tree:
    """Nests calls.

    Args:
        start_ns, dur_ns: begin and length of each call in nanoseconds.
        thread: number of the thread it ran on.
    """
    order = np.lexsort((-dur_ns, start_ns, thread))
    start_ns, thread = start_ns[order], thread[order]
    end_ns = start_ns + np.maximum(dur_ns[order], 0)
    parent = np.empty(len(order), np.int32)
    depth = np.empty(len(order), np.int16)
    bounds = np.flatnonzero(np.diff(thread, prepend=NOBODY - 1, append=np.iinfo(np.int32).max))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        _nest_thread(first, start_ns[first:last], end_ns[first:last], parent[first:last], depth[first:last])
    inside = parent >= 0
    overlapping = int((end_ns[inside] > end_ns[parent[inside]]).sum())
    return Tree(order, start_ns, end_ns, thread, parent, depth, overlapping)


def _nest_thread(first: int, starts: Ints, ends: Ints, parent: Rows, depth: NDArray[np.int16]) -> None:
    open_ends: list[int] = []
    open_rows: list[int] = []
    row = first
    for at in range(0, len(starts), _CHUNK):
        parents: list[int] = []
        depths: list[int] = []
        chunk = zip(starts[at : at + _CHUNK].tolist(), ends[at : at + _CHUNK].tolist(), strict=True)
        for start, end in chunk:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
                open_rows.pop()
            parents.append(open_rows[-1] if open_rows else NOBODY)
            depths.append(len(open_rows))
            open_ends.append(end)
            open_rows.append(row)
            row += 1
        parent[at : at + len(parents)] = parents
        depth[at : at + len(depths)] = depths
