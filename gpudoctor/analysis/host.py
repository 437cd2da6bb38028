"""What each host thread was doing at any time, from its operators and runtime calls.

Every event of a thread gets an activity (`INPUT`, `SYNC`, …) or none (a range around other things says nothing about
who had the time). Where events lie within each other the activity that comes first in `PRIORITY` wins: a blocking call
inside the DataLoader is input, a launch inside `Optimizer.step` is optimizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudoctor.analysis import frames
from gpudoctor.analysis.intervals import Ints, contains, distinct, merge
from gpudoctor.columns import MISSING

Codes = NDArray[np.int8]

NONE, COMPILE, INPUT, SYNC, MEMORY, OPTIMIZER, LAUNCH = -1, 0, 1, 2, 3, 4, 5
ACTIVITIES = ("compile", "input", "sync", "memory", "optimizer", "launch")
PRIORITY = (COMPILE, INPUT, SYNC, MEMORY, OPTIMIZER, LAUNCH)

_NAMES: tuple[tuple[int, re.Pattern[str]], ...] = (
    (COMPILE, re.compile(r"\(dynamo_timed\)$")),  # record_function ranges of torch._dynamo.utils.dynamo_timed
    (INPUT, re.compile(r"^enumerate\(DataLoader\)#")),
    (OPTIMIZER, re.compile(r"^Optimizer\.(step|zero_grad)#")),
    # operators have a namespace; nodes of the backward graph, compiled regions and Inductor's kernels have none
    (LAUNCH, re.compile(r"::|Backward\d*$|^Torch-Compiled Region|^TorchDynamo |CompiledF|^triton_")),
)
_MEMORY_KINDS = ("allocate", "free")
_DEEPEST = 2000
"""Nesting at which looking outwards stops: twice Python's own recursion limit; only a damaged table has more."""


def operator_activity(name: str) -> int:
    """Activity of an operator or range by its name; `NONE` for a user's range and for ranges around the step."""
    return next((code for code, pattern in _NAMES if pattern.search(name)), NONE)


@dataclass(frozen=True, slots=True)
class Events:
    """Operators and runtime calls of all threads as one list, without empty ones.

    Attributes:
        start: begins.
        end: ends; an event ends with the one around it at the latest.
        thread: thread ids.
        activity: codes as above.
        outer: number of the event around it; -1 for none.
        op: op id of the operator, or of the innermost operator around the call; `MISSING` for none.
        call: id of the runtime call; `MISSING` for operators.
        name: codes into `names`.
        names: event names.
    """

    start: Ints
    end: Ints
    thread: Ints
    activity: Codes
    outer: NDArray[np.intp]
    op: Ints
    call: Ints
    name: NDArray[np.int32]
    names: list[str]


def events(ops: pd.DataFrame, calls: pd.DataFrame) -> Events:
    """The events of the tables `ops` and `runtime_calls`."""
    op_name, call_name = frames.texts(ops, "name"), frames.texts(calls, "name")
    known = np.array([*map(operator_activity, op_name.values), NONE], np.int8)
    memory = frames.is_one_of(calls, "kind", *_MEMORY_KINDS)
    blocking = frames.flags(calls, "blocks")
    call_activity = np.where(memory, MEMORY, np.where(blocking, SYNC, LAUNCH)).astype(np.int8)
    op_ids, inside = frames.integers(ops, "op"), frames.integers(calls, "op")
    parent = frames.integers(ops, "parent")
    outer = np.concatenate([frames.rows_of(op_ids, parent), frames.rows_of(op_ids, inside)])
    start = np.concatenate([frames.integers(ops, "start_ns"), frames.integers(calls, "start_ns")])
    length = np.concatenate([frames.integers(ops, "dur_ns"), frames.integers(calls, "dur_ns")])
    end = _inside_outer(start + np.maximum(length, 0), outer)
    made = Events(
        start,
        end,
        np.concatenate([frames.integers(ops, "thread"), frames.integers(calls, "thread")]),
        np.concatenate([known[op_name.codes], call_activity]),
        outer,
        np.concatenate([op_ids, inside]),
        np.concatenate([np.full(len(ops), MISSING), frames.integers(calls, "call")]),
        np.concatenate([op_name.codes, np.where(call_name.codes < 0, -1, call_name.codes + len(op_name.values))]),
        [*op_name.values, *call_name.values],
    )
    return _without_empty(made)


def _inside_outer(end: Ints, outer: NDArray[np.intp]) -> Ints:
    """Ends clipped to those of the events around: children overrun their parents by a microsecond in real traces."""
    for _ in range(_DEEPEST):
        clipped = np.where(outer >= 0, np.minimum(end, end[outer]), end)
        if (clipped == end).all():
            break
        end = clipped
    return np.asarray(end, dtype=np.int64)


def _without_empty(all_: Events) -> Events:
    """The events with a length; those inside an empty one are inside what is around it."""
    filled = all_.end > all_.start
    outer = all_.outer
    for _ in range(_DEEPEST):
        astray = (outer >= 0) & ~filled[outer]
        if not astray.any():
            break
        outer = np.where(astray, outer[outer], outer)
    outer = np.where(filled[outer], outer, -1)
    number = np.cumsum(filled) - 1
    outer = np.where(outer >= 0, number[outer], -1)
    return Events(
        all_.start[filled],
        all_.end[filled],
        all_.thread[filled],
        all_.activity[filled],
        outer[filled],
        all_.op[filled],
        all_.call[filled],
        all_.name[filled],
        all_.names,
    )


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread's activities over time.

    Attributes:
        edges: times at which its activity changes, ascending.
        activity: the activity from each edge on; `NONE` where none of its events says.
        events: numbers of its events by begin, the outer of two first.
        starts: begins of those.
        ended: numbers of its outermost events by end; of its operators when it has any.
        ends: ends of those.
        operators: it runs operators.
    """

    edges: Ints
    activity: Codes
    events: NDArray[np.intp]
    starts: Ints
    ended: NDArray[np.intp]
    ends: Ints
    operators: bool

    def at(self, times: Ints) -> Codes:
        """Its activity at each time."""
        at = np.searchsorted(self.edges, times, side="right") - 1
        return np.where(at >= 0, self.activity[at], NONE).astype(np.int8) if len(self.edges) else _none(times)


def thread(all_: Events, one: int) -> Thread:
    """The timeline of one thread."""
    rows = np.flatnonzero(all_.thread == one)
    rows = rows[np.lexsort((-all_.end[rows], all_.start[rows]))]
    start, end, activity = all_.start[rows], all_.end[rows], all_.activity[rows]
    spans = [merge(start[activity == code], end[activity == code]) for code in PRIORITY]
    edges = distinct(np.concatenate([side for s in spans for side in (s.start, s.end)]))
    state = _none(edges)
    for code, span in reversed(list(zip(PRIORITY, spans, strict=True))):
        state[contains(span, edges)] = code
    changed = np.ones(len(state), np.bool_)
    changed[1:] = state[1:] != state[:-1]
    is_op = all_.call[rows] == MISSING
    speaking = rows[is_op & (activity != NONE)]
    operators = bool(len(speaking))
    ended = speaking if operators else rows
    ended = ended[np.lexsort((-all_.start[ended], all_.end[ended]))]
    return Thread(edges[changed], state[changed], rows, start, ended, all_.end[ended], operators)


def _none(times: Ints) -> Codes:
    return np.full(len(times), NONE, np.int8)


def event_of(all_: Events, one: Thread, times: Ints, activity: Codes) -> NDArray[np.intp]:
    """The innermost event of a thread that gives it its activity.

    Args:
        all_: the events.
        one: the thread.
        times: when.
        activity: what the thread was doing then.

    Returns:
        Numbers of events.
    """
    if not len(one.events):
        return np.full(len(times), -1, np.intp)
    at = np.searchsorted(one.starts, times, side="right") - 1
    found = np.where(at >= 0, one.events[at], -1)
    looking = np.flatnonzero(found >= 0)
    for _ in range(_DEEPEST):
        event = found[looking]
        looking = looking[(all_.end[event] <= times[looking]) | (all_.activity[event] != activity[looking])]
        found[looking] = all_.outer[found[looking]]
        looking = looking[found[looking] >= 0]
        if not len(looking):
            break
    found[looking] = -1
    for code in np.unique(activity[found < 0]):  # events that overlap without lying within each other
        lost = np.flatnonzero((found < 0) & (activity == code))
        found[lost] = _reaching_furthest(all_, one, times[lost], int(code))
    return found


def _reaching_furthest(all_: Events, one: Thread, times: Ints, activity: int) -> NDArray[np.intp]:
    """Among the events with an activity that have begun at each time, the one that ends last; -1 for none."""
    mine = one.events[all_.activity[one.events] == activity]
    reach = np.maximum.accumulate(all_.end[mine]) if len(mine) else np.empty(0, np.int64)
    holder = np.maximum.accumulate(np.where(all_.end[mine] == reach, np.arange(len(mine)), 0))
    at = np.searchsorted(all_.start[mine], times, side="right") - 1
    return np.where(at >= 0, mine[holder[at]], -1) if len(mine) else np.full(len(times), -1, np.intp)


def last_ended(all_: Events, one: Thread, times: Ints) -> tuple[NDArray[np.intp], Ints]:
    """The event of a thread that had ended last at each time (-1 for none), and when."""
    if not len(one.ended):
        return np.full(len(times), -1, np.intp), np.full(len(times), MISSING)
    at = np.searchsorted(one.ends, times, side="right") - 1
    return np.where(at >= 0, one.ended[at], -1), np.where(at >= 0, one.ends[at], MISSING)


def next_begun(one: Thread, times: Ints) -> NDArray[np.intp]:
    """The first event of a thread that begins at or after each time; -1 for none."""
    if not len(one.events):
        return np.full(len(times), -1, np.intp)
    at = np.searchsorted(one.starts, times, side="left")
    return np.where(at < len(one.events), one.events[np.minimum(at, len(one.events) - 1)], -1)


def speakers(all_: Events, launching: Ints) -> list[int]:
    """Threads whose doings explain a device's idle time: the loop's first, then those that launch, busiest first.

    A thread that neither launches nor takes batches nor steps the optimizer (a watchdog that polls events, say) is not
    among them.
    """
    loop = np.isin(all_.activity, (INPUT, OPTIMIZER))
    weights: dict[int, tuple[bool, int]] = {}
    for one, count in zip(*np.unique(launching, return_counts=True), strict=True):
        weights[int(one)] = (False, int(count))
    for one in np.unique(all_.thread[loop]):
        weights[int(one)] = (True, weights.get(int(one), (False, 0))[1])
    return sorted(weights, key=lambda one: weights[one], reverse=True)
