"""Runs of short kernels for which the device had to wait: work that is dominated by launching it.

A kernel belongs to a run when it is shorter than a bound, began soon after its launch call had returned (the device was
waiting for it), no other stream was busy meanwhile, and no graph replayed it. A run goes on while the next activity of
the stream is such a kernel, comes within a bound, and the host did not wait for anything in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.intervals import Ints, Mask, Spans, covered, merge
from gpudoctor.columns import MISSING

SHORT_NS = 10_000
"""A kernel shorter than this takes less time than launching it: a launch costs the host 4 to 10 µs."""

WAITED_NS = 10_000
"""A kernel that begins within this time after its launch call was waited for: latencies of queued work are longer."""

PAUSE_NS = 100_000
"""A longer pause is not the rate of launches: under a profiler a small operator takes the host 20 to 60 µs."""

FEWEST = 2
"""Kernels that make a run."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs on one device, in order of their begins.

    Attributes:
        member: number of the run of each activity; -1 for none.
        stream: their streams.
        start: begins of their first kernels.
        end: ends of their last kernels.
        kernels: how many kernels.
        kernel_ns: time in the kernels.
    """

    member: NDArray[np.intp]
    stream: Ints
    start: Ints
    end: Ints
    kernels: Ints
    kernel_ns: Ints


def runs(
    start: Ints,
    end: Ints,
    stream: Ints,
    launched: Ints,
    single: Mask,
    waited: Spans,
    short_ns: int = SHORT_NS,
) -> Runs:
    """The runs of short kernels on one device.

    Args:
        start: begins of its activities, ascending.
        end: their ends.
        stream: their streams.
        launched: ends of their launch calls; `MISSING` when not recorded.
        single: kernels with a launch of their own (no copies, no graph replays).
        waited: times in which the host waited for input, the device or memory.
        short_ns: a shorter kernel is short.
    """
    fits = single & (launched != MISSING) & (end - start < short_ns) & (end >= start)
    fits &= start - np.where(launched == MISSING, 0, launched) < WAITED_NS
    fits &= covered(_others(start, end, stream), start, end) == 0
    order = np.lexsort((start, stream))
    begin, stop, lane, fit = start[order], end[order], stream[order], fits[order]
    joined = np.zeros(len(order), np.bool_)
    if len(order) > 1:
        pause = begin[1:] - stop[:-1]
        joined[1:] = fit[1:] & fit[:-1] & (lane[1:] == lane[:-1]) & (pause < PAUSE_NS)
        joined[1:] &= covered(waited, stop[:-1], begin[1:]) == 0
    number = np.cumsum(~joined) - 1
    size = np.bincount(number, weights=fit, minlength=1).astype(np.int64) if len(number) else np.zeros(0, np.int64)
    large = size >= FEWEST
    renumber = np.where(large, np.cumsum(large) - 1, -1)
    member = np.full(len(order), -1, np.intp)
    member[order] = renumber[number]
    heads = np.flatnonzero(~joined)
    tails = np.append(heads[1:], len(order)) - 1
    time = np.add.reduceat(stop - begin, heads) if len(heads) else np.zeros(0, np.int64)
    return Runs(member, lane[heads][large], begin[heads][large], stop[tails][large], size[large], time[large])


def _others(start: Ints, end: Ints, stream: Ints) -> Spans:
    """Times in which at least two streams are busy."""
    lanes = [merge(start[stream == one], end[stream == one]) for one in np.unique(stream)]
    if len(lanes) < 2:
        return merge(start[:0], end[:0])
    times = np.concatenate([side for lane in lanes for side in (lane.start, lane.end)])
    change = np.concatenate([np.full(len(lane), sign) for lane in lanes for sign in (1, -1)])
    order = np.lexsort((change, times))
    depth = np.cumsum(change[order])
    several = np.flatnonzero(depth[:-1] > 1)
    return merge(times[order][several], times[order][several + 1])
