from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpudoctor.analysis import intervals
from gpudoctor.analysis.intervals import Spans, ints, merge

SIZE = 40
EPOCH = 1_700_000_000_000_000_000  # a float64 cannot hold such a time to the nanosecond

points = st.integers(0, SIZE)
lists = st.lists(st.tuples(points, points), max_size=12)


def arrays(pairs: list[tuple[int, int]]) -> tuple[intervals.Ints, intervals.Ints]:
    return ints([a + EPOCH for a, _ in pairs]), ints([b + EPOCH for _, b in pairs])


def bitmap(pairs: list[tuple[int, int]]) -> NDArray[np.bool_]:
    bits = np.zeros(SIZE, np.bool_)
    for start, end in pairs:
        bits[start:end] = True
    return bits


def drawn(spans: Spans) -> NDArray[np.bool_]:
    assert (spans.end > spans.start).all()
    assert (spans.start[1:] > spans.end[:-1]).all()  # sorted, disjoint, not touching
    return bitmap(list(zip((spans.start - EPOCH).tolist(), (spans.end - EPOCH).tolist(), strict=True)))


@given(lists)
def test_a_union_is_the_bitmap_and_its_total_the_bits(pairs: list[tuple[int, int]]) -> None:
    spans = merge(*arrays(pairs))
    assert (drawn(spans) == bitmap(pairs)).all()
    assert spans.total == bitmap(pairs).sum()


@given(lists, lists)
def test_set_operations_are_those_of_bitmaps(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = merge(*arrays(a)), merge(*arrays(b))
    assert (drawn(intervals.intersect(left, right)) == (bitmap(a) & bitmap(b))).all()
    assert (drawn(intervals.subtract(left, right)) == (bitmap(a) & ~bitmap(b))).all()
    assert (drawn(intervals.union(left, right)) == (bitmap(a) | bitmap(b))).all()


@given(lists, points, points)
def test_a_complement_stays_in_its_window(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    made = drawn(intervals.complement(merge(*arrays(pairs)), start + EPOCH, end + EPOCH))
    assert (made == (bitmap([(start, end)]) & ~bitmap(pairs))).all()


@given(lists, lists)
def test_covered_counts_the_bits_in_each_interval(pairs: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    counted = intervals.covered(merge(*arrays(pairs)), *arrays(windows))
    assert counted.tolist() == [int(bitmap(pairs)[a:b].sum()) for a, b in windows]


@given(lists, st.lists(points, max_size=8))
def test_contains_reads_the_bitmap(pairs: list[tuple[int, int]], times: list[int]) -> None:
    bits = np.append(bitmap(pairs), False)
    made = intervals.contains(merge(*arrays(pairs)), ints([t + EPOCH for t in times]))
    assert made.tolist() == [bool(bits[t]) for t in times]


@given(lists)
def test_first_come_gives_each_nanosecond_to_one_interval(pairs: list[tuple[int, int]]) -> None:
    start, end = intervals.first_come(*arrays(pairs))
    owners = np.full(SIZE, -1)
    for row in sorted(range(len(pairs)), key=lambda row: pairs[row][0]):  # stable: ties by row
        free = np.flatnonzero(owners[pairs[row][0] : pairs[row][1]] < 0) + pairs[row][0]
        owners[free] = row
    lengths = [int((owners == row).sum()) for row in range(len(pairs))]
    assert (end - start).tolist() == lengths
    assert sum(lengths) == merge(*arrays(pairs)).total


@given(lists, st.sets(points, max_size=8))
def test_split_keeps_every_nanosecond_and_cuts_at_each_edge(pairs: list[tuple[int, int]], cuts: set[int]) -> None:
    filled = [(a, b) for a, b in pairs if b > a]
    edges = ints([t + EPOCH for t in sorted(cuts)])
    start, end, origin = intervals.split(*arrays(filled), edges)
    wanted = []
    for row, (a, b) in enumerate(filled):
        stops = [a, *(t for t in sorted(cuts) if a < t < b), b]
        wanted += [(x, y, row) for x, y in itertools.pairwise(stops)]
    assert list(zip((start - EPOCH).tolist(), (end - EPOCH).tolist(), origin.tolist(), strict=True)) == wanted


def test_empty_and_negative_intervals_cover_nothing() -> None:
    assert len(merge(ints([5, 7]), ints([5, 3]))) == 0
    assert intervals.covered(merge(ints([0]), ints([9])), ints([4, 6]), ints([4, 2])).tolist() == [0, 0]
    assert intervals.union().total == 0
