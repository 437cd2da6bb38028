"""The points of the host's threads: begins and ends of operators, runtime calls and steps, in the program's order.

The order at equal times decides whether an edit of the graph is right: an end that is sorted behind the begin that
follows it loses a whole wait, and the unchanged replay does not show it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from gpudoctor.analysis.simulate.events import NONE, ROUNDING_NS, Events, Floats, Ints

OP_START, OP_END, CALL_START, CALL_END, STEP_START, STEP_END = range(6)

HANDOVER_NS = 10_000.0
"""Silence of a thread from which another may have kept it waiting."""

_ENDS, _STEPS, _STARTS, _EMPTY = range(4)
"""Order at equal times: ends of what took time, steps, begins, ends of what took none."""


@dataclass(frozen=True, slots=True)
class Points:
    """Points by thread, each thread's in the order of its program.

    Attributes:
        time: when.
        kind: one of the numbers above.
        ref: row of the operator range, the call or the step.
        thread: thread id.
        first: the first of its thread, or of its thread's stretch of profiled steps.
        hand: point of the other thread that this one waited for; `NONE` where it waited for none.
    """

    time: Floats
    kind: Ints
    ref: Ints
    thread: Ints
    first: Ints
    hand: Ints

    def __len__(self) -> int:
        return len(self.time)


def points(events: Events) -> Points:
    """The points of all threads that belong to the training step."""
    time, kind, ref, thread, rank, depth = _raw(events)
    order = np.lexsort((depth, rank, time, thread))
    time, kind, ref, thread = time[order], kind[order], ref[order], thread[order]
    stretch = events.stretch(time)
    same = (thread[1:] == thread[:-1]) & (stretch[1:] == stretch[:-1])
    first = np.concatenate(([True], ~same)) if len(time) else np.empty(0, bool)
    hand = _hand_overs(events, time, kind, thread, first)
    return Points(time, kind, ref, thread, first, hand)


def _raw(events: Events) -> tuple[Floats, Ints, Ints, Ints, Ints, Floats]:
    """Time, kind, reference, thread, rank at equal times and order within the rank, of each begin and end."""
    calls, ranges = events.calls, events.ranges
    launching = np.unique(calls.thread)
    ours = np.isin(ranges.thread, np.concatenate((launching, [events.main, *events.autograd])))
    thread = np.concatenate((ranges.thread[ours], calls.thread))
    start = np.concatenate((ranges.start[ours], calls.start))
    end = np.concatenate((ranges.end[ours], calls.end))
    ref = np.concatenate((np.flatnonzero(ours), np.arange(len(calls))))
    begins = np.concatenate((np.full(int(ours.sum()), OP_START), np.full(len(calls), CALL_START)))
    order = np.lexsort((-end, start, thread))
    thread, ref, begins = thread[order], ref[order], begins[order]
    start, end = _nested(thread, start[order], end[order])
    took = end > start
    number = np.arange(len(events.step))
    main = np.full(len(number), events.main)
    marks = np.full(len(number), _STEPS)
    mine = thread == events.main
    step_end = _after(events.step_end, start[mine], end[mine])
    step_start = _after(events.step_start, start[mine], end[mine])
    return (
        np.concatenate((start, end, step_end, step_start)),
        np.concatenate((begins, begins + 1, np.full(len(number), STEP_END), np.full(len(number), STEP_START))),
        np.concatenate((ref, ref, number, number)),
        np.concatenate((thread, thread, main, main)),
        np.concatenate((np.full(len(start), _STARTS), np.where(took, _ENDS, _EMPTY), marks, marks)),
        np.concatenate((start - end, -start, np.zeros(len(number)), np.ones(len(number)))),
    )


def _after(marks: Floats, start: Floats, end: Floats) -> Floats:
    """Steps' marks, moved behind what ends up to a rounding later: they are made when it is over."""
    order = np.argsort(end, kind="stable")
    start, end = start[order], end[order]
    last = np.searchsorted(end, marks + ROUNDING_NS, side="right") - 1
    made = marks.copy()
    for mark, row in enumerate(last.tolist()):
        at = row
        while at >= 0 and end[at] > marks[mark]:
            if start[at] < marks[mark]:
                made[mark] = end[at]
                break
            at -= 1
    return made


def _nested(thread: Ints, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Begins and ends that nest: what begins up to a rounding before its predecessor's end begins at that end, and what
    overruns what it lies in by a rounding ends with it."""
    begins, ends = start.tolist(), end.tolist()
    last, low = NONE - 1, 0.0
    stack: list[float] = []
    for row, group in enumerate(thread.tolist()):
        if group != last:
            last, stack, low = group, [], -np.inf
        begin = max(begins[row], low)
        until = max(ends[row], begin)
        while stack and stack[-1] <= begin:
            stack.pop()
        while stack and until > stack[-1] and stack[-1] - begin <= ROUNDING_NS:
            begin = max(begin, stack.pop())
        if stack and stack[-1] < until <= stack[-1] + ROUNDING_NS:
            until = stack[-1]
        until = max(until, begin)
        low = begin
        stack.append(until)
        begins[row], ends[row] = begin, until
    return np.array(begins, np.float64), np.array(ends, np.float64)


def _hand_overs(events: Events, time: Floats, kind: Ints, thread: Ints, first: Ints) -> Ints:
    """For each point the last point of the other thread, where a silence on this thread says that it waited for that.

    Between the loop's thread and one of the autograd engine: the other did something within the silence and then was
    silent itself, past the end of this one's.
    """
    hand = np.full(len(time), NONE, np.int64)
    rows = {group: np.flatnonzero(thread == group) for group in (events.main, *events.autograd)}
    for other in events.autograd:
        for waiting, working in ((events.main, other), (other, events.main)):
            _hand_over(time, kind, first, rows[waiting], rows[working], hand)
    return hand


def _hand_over(time: Floats, kind: Ints, first: Ints, waiting: Ints, working: Ints, hand: Ints) -> None:
    if not len(waiting) or not len(working):
        return
    before = np.where(first[waiting], -np.inf, time[np.maximum(waiting - 1, 0)])
    silent = np.flatnonzero(time[waiting] - before >= HANDOVER_NS)
    theirs = time[working].tolist()
    for row in silent.tolist():
        point = int(waiting[row])
        at = float(time[point])
        last = bisect_right(theirs, at) - 1
        while last >= 0 and kind[working[last]] in (STEP_START, STEP_END) and theirs[last] == at:
            last -= 1  # a step's mark is no work, and it can lie on the very moment
        if last < 0 or theirs[last] <= before[row] or kind[working[last]] in (OP_START, CALL_START):
            continue
        if last + 1 < len(theirs) and theirs[last + 1] < at + HANDOVER_NS:
            continue
        known = hand[point]
        if known == NONE or time[known] < theirs[last]:
            hand[point] = working[last]
