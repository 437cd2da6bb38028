"""What a trace says of its machine: launch latency, gaps between activities, how long the launch queue is.

The figures behind the limits were measured on public traces of training; each constant says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudoctor.analysis.simulate.events import KINDS, NONE, Activities, Calls, Floats, Ints

MAX_SUBMIT_NS = 20_000.0
"""A call hands its work to the device after its usual duration, but no later than this: longer calls wait."""

QUEUED_NS = 20_000.0
"""By how much the predecessor must end after the launch call for the gap behind it to be the device's own."""

IDLE_NS = 5_000.0
"""By how much the stream must be idle before the launch call for the delay to be the launch's own."""

MAX_GAP_NS = 50_000.0
MAX_LATENCY_NS = 200_000.0
"""Longer ones are waits for something else, not the machine's constants."""

GAP_NS, LATENCY_NS, TAIL_NS = 1_200.0, 5_000.0, 5_000.0
"""Where a trace has too few: typical ones (0 to 2.4 µs, 1 to 28 µs, 4 to 13 µs over public traces)."""

QUEUE = 1022
"""Launches that a CUDA stream takes before the host waits, where the trace never reached the limit."""

MIN_QUEUE = 400
"""Outstanding launches from which a long launch call can be a full queue."""

_ENOUGH = 20
_TRIMMED = 0.95


@dataclass(frozen=True, slots=True)
class Constants:
    """A trace's constants in nanoseconds.

    Attributes:
        typical: by call name: usual duration, at most `MAX_SUBMIT_NS`.
        gap: from the end of an activity to the begin of the next on its stream, when that was queued.
        graph_gap: the same inside a graph launch.
        gap90: nine of ten gaps are no longer.
        latency: by kind of activity: from submission to begin on an idle stream.
        latency95: 95 of 100 are no longer.
        queue: launches outstanding at which the host waits.
        queue_seen: the trace reached that limit.
    """

    typical: Floats
    gap: float
    graph_gap: float
    gap90: float
    latency: Floats
    latency95: float
    queue: int
    queue_seen: bool


def typical_durations(calls: Calls) -> Floats:
    """By call name the median duration, at most `MAX_SUBMIT_NS`."""
    made = np.full(len(calls.texts), MAX_SUBMIT_NS)
    duration = calls.end - calls.start
    order = np.argsort(calls.name, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(calls.name[order])) + 1) if len(order) else ():
        made[calls.name[rows[0]]] = min(_quantile(duration[rows], 0.5, LATENCY_NS), MAX_SUBMIT_NS)
    return made


def submitted(calls: Calls, typical: Floats) -> Floats:
    """When each call hands its work to the device, by its usual duration."""
    if not len(calls):
        return np.empty(0)
    return calls.start + np.minimum(calls.end - calls.start, typical[calls.name])


def measure(activities: Activities, calls: Calls, before: Ints, order: Ints) -> Constants:
    """The constants of a trace.

    Args:
        activities: all.
        calls: all.
        before: row of each activity's predecessor on its stream.
        order: rows of launched activities (the first of each graph launch) in the order of their launches.
    """
    typical = typical_durations(calls)
    launched = (activities.call != NONE) & (activities.node == 0)
    rows = np.flatnonzero(launched)
    call = activities.call[rows]
    replays = np.bincount(activities.call[activities.call != NONE], minlength=len(calls))[call] > 1
    ahead = before[rows]
    until = np.where(ahead != NONE, activities.end[ahead], -np.inf)
    queued = until > calls.end[call] + QUEUED_NS
    idle = (until < calls.start[call] - IDLE_NS) & ~replays  # a graph takes longer to begin
    gaps = (activities.start[rows] - until)[queued]
    gaps = gaps[gaps < MAX_GAP_NS]
    delays = (activities.start[rows] - submitted(calls, typical)[call])[idle]
    kinds = activities.kind[rows][idle][delays < MAX_LATENCY_NS]
    delays = delays[delays < MAX_LATENCY_NS]
    usual = _quantile(delays, 0.5, LATENCY_NS)
    if len(delays) < _ENOUGH:  # a few of them can all have waited for something else
        usual = min(usual, MAX_SUBMIT_NS)
    latency = [_quantile(delays[kinds == kind], 0.5, usual) for kind in range(len(KINDS))]
    counts = [int((kinds == kind).sum()) for kind in range(len(KINDS))]
    gap = _trimmed_mean(gaps, GAP_NS)
    inner = np.flatnonzero((activities.node > 0) & (before != NONE))
    graph = activities.start[inner] - activities.end[before[inner]]
    queue = _queue(activities, calls, typical, order)
    return Constants(
        typical=typical,
        gap=gap,
        graph_gap=_trimmed_mean(graph[graph < MAX_GAP_NS], gap),
        gap90=max(gap, _quantile(gaps, 0.9, 3_000.0)),
        latency=np.array([own if count >= 10 else usual for own, count in zip(latency, counts, strict=True)]),
        latency95=max(_quantile(delays, 0.95, 20_000.0), usual + 5_000.0),
        queue=QUEUE if queue is None else queue,
        queue_seen=queue is not None,
    )


def outstanding(activities: Activities, calls: Calls, order: Ints) -> Ints:
    """Launches that are not done when each call of `order` returns, its own counted."""
    ends = np.sort(_launch_ends(activities, order))
    return np.arange(1, len(order) + 1) - np.searchsorted(ends, calls.end[activities.call[order]], side="right")


def _launch_ends(activities: Activities, order: Ints) -> Floats:
    """When all activities of each launch have ended."""
    last = np.full(int(activities.call.max(initial=0)) + 1, -np.inf)
    known = activities.call != NONE
    np.maximum.at(last, activities.call[known], activities.end[known])
    return last[activities.call[order]]


def _queue(activities: Activities, calls: Calls, typical: Floats, order: Ints) -> int | None:
    """Outstanding launches at which the host waits; None when it never did."""
    if not len(order):
        return None
    call = activities.call[order]
    duration = calls.end[call] - calls.start[call]
    copies = np.array(["emcpy" in text for text in calls.texts], bool)[calls.name[call]]
    waited = (duration > np.maximum(30_000.0, 5 * typical[calls.name[call]])) & ~copies
    waited &= activities.start[order] > calls.end[call]
    counts = outstanding(activities, calls, order)[waited]
    counts = counts[counts >= MIN_QUEUE]
    return int(_quantile(counts.astype(np.float64), 0.5, QUEUE)) if len(counts) >= 5 else None


def _quantile(values: Floats, share: float, otherwise: float) -> float:
    """The value at a share of the sorted values, without interpolation."""
    if not len(values):
        return otherwise
    return float(np.sort(values)[min(len(values) - 1, int(share * len(values)))])


def _trimmed_mean(values: Floats, otherwise: float) -> float:
    """Mean of the lower 95 %: medians of whole microseconds are off by up to one, which adds up over a step."""
    if len(values) < _ENOUGH:
        return otherwise
    return max(0.0, float(np.sort(values)[: int(_TRIMMED * len(values))].mean()))
