"""Why each activity began when it did: its launch, its stream, an event of another stream, room on the device."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from gpudoctor.analysis.simulate.constants import Constants
from gpudoctor.analysis.simulate.events import NONE, Activities, Bools, Calls, Events, Floats, Ints

NEAR_NS = 2_000.0
"""By how much two clocks' readings of one moment may differ."""

OPAQUE_NS = 30_000.0
"""Waits that nothing explains count from here on; shorter ones are the device's scatter."""

_WAIT = re.compile(r"StreamWaitEvent")
_RECORD = re.compile(r"EventRecord")
_LONG_NS, _LONG = 30_000.0, 4.0
_MAX_CROSS_NS = 20_000.0
_GUESS_NS = 25_000.0
_RESOURCE_NS, _RESOURCE_SHARE, _RESOURCE_REACH_NS = 20_000.0, 0.15, 500_000.0


@dataclass(slots=True)
class Begins:
    """What each activity's begin hangs on, in nanoseconds.

    Attributes:
        before: row of its predecessor on its stream.
        at_end: it was submitted when its call ended, not after the call's usual duration.
        in_call: it began inside a long call; its latency is its own.
        latency: from submission to begin.
        gap: behind its predecessor.
        cross_gap: behind the activities of other streams that it waited for.
        waited: of that kind: pairs (activity, row it waited for).
        guessed: pairs of which only the times say so, one beginning as the other ends.
        room: pairs (activity, row that held the device, offset, whether from that one's end).
        extra: what none of them explains; opaque where it is long.
        opaque: of it, what is reported.
    """

    before: Ints
    at_end: Bools
    in_call: Bools
    latency: Floats
    gap: Floats
    cross_gap: Floats
    extra: Floats
    opaque: Floats
    waited: list[tuple[int, int]] = field(default_factory=list)
    guessed: list[tuple[int, int]] = field(default_factory=list)
    room: list[tuple[int, int, float]] = field(default_factory=list)


def predecessors(activities: Activities, stretch: Ints) -> Ints:
    """Row of each activity's predecessor on its stream, within its stretch of profiled steps."""
    before = np.full(len(activities), NONE, np.int64)
    order = np.argsort(activities.lane, kind="stable")
    same = activities.lane[order][1:] == activities.lane[order][:-1]
    same &= stretch[order][1:] == stretch[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def launch_order(activities: Activities, calls: Calls) -> Ints:
    """Rows of launched activities, the first of each graph launch, in the order of their launches."""
    rows = np.flatnonzero((activities.call != NONE) & (activities.node == 0))
    return rows[np.lexsort((rows, calls.start[activities.call[rows]]))]


def begins(events: Events, constants: Constants, before: Ints, copying: set[int]) -> Begins:
    """Explains every begin.

    Args:
        events: all.
        constants: the trace's.
        before: row of each activity's predecessor on its stream.
        copying: calls that wait for their own copy, which cannot have been submitted at their end.
    """
    activities, calls = events.activities, events.calls
    count = len(activities)
    launched = activities.call != NONE
    call = np.where(launched, activities.call, 0)
    single = len(np.unique(activities.lane)) <= 1
    waited = [] if single else _waited(events)
    nothing = np.zeros(count)
    if not len(calls):
        false = np.zeros(count, bool)
        return Begins(before, false, false, nothing, nothing, nothing, nothing.copy(), nothing.copy())
    start, duration = calls.start[call], calls.end[call] - calls.start[call]
    typical = constants.typical[calls.name[call]]
    long = duration > np.maximum(_LONG_NS, _LONG * typical)
    at_end = long & (activities.start >= calls.end[call] - NEAR_NS) & ~np.isin(call, list(copying))
    submitted = np.where(at_end, calls.end[call], start + np.minimum(duration, typical))
    usual = constants.latency[activities.kind]
    ready = np.where(activities.node > 0, -np.inf, submitted + usual)
    stream = np.where(before != NONE, activities.end[before], -np.inf)
    other = np.full(count, -np.inf)
    for row, source in waited:
        other[row] = max(other[row], activities.end[source])
    device = np.maximum(stream, other)
    bound = device + constants.gap >= ready
    rest = activities.start - np.where(np.isfinite(device), device, activities.start)
    by_stream = bound & (stream >= other)
    gap = np.where(by_stream, np.minimum(rest, max(3 * constants.gap90, 10_000.0)), constants.gap)
    cross_gap = np.where(bound & ~by_stream, np.minimum(rest, _MAX_CROSS_NS), constants.gap)
    delay = activities.start - submitted
    in_call = ~bound & long & ~at_end
    latency = np.where(bound, usual, np.where(in_call, delay, np.minimum(delay, constants.latency95)))
    early = ~bound & (delay < usual) & (before != NONE)
    gap = np.where(early, np.minimum(constants.gap, activities.start - stream), gap)
    explained = np.maximum(stream + gap, other + cross_gap)
    explained = np.where(bound, np.maximum(explained, ready), np.maximum(submitted + latency, explained))
    extra = np.where(launched & np.isfinite(explained), activities.start - explained, 0.0)
    made = Begins(before, at_end, in_call, latency, gap, cross_gap, extra, nothing.copy(), waited)
    if not single:
        _explain(activities, calls, made, activities.start - extra)
    made.opaque = np.where(made.extra > OPAQUE_NS, made.extra, 0.0)
    made.extra = np.maximum(made.extra, 0.0)
    return made


def _waited(events: Events) -> list[tuple[int, int]]:
    """Pairs (activity, activity of another stream that it waited for) by the stream waits of the host's calls.

    With the device's own record a wait names its stream and the call that recorded the event. Without it a wait
    holds for what is launched next (by its thread, or by another that trains: one waits while the other launches), and
    is for the last that was launched before on each other stream.
    """
    activities, calls = events.activities, events.calls
    waits = np.array([bool(_WAIT.search(text)) for text in calls.texts] or [False], bool)[calls.name]
    recorded = records(calls)
    launches: dict[int, list[int]] = defaultdict(list)
    for row, of in enumerate(activities.call.tolist()):
        if of != NONE:
            launches[of].append(row)
    on_stream = _by_stream(activities, calls)
    start, end, lane = activities.start.tolist(), activities.end.tolist(), activities.lane.tolist()
    device, stream = activities.device.tolist(), activities.stream.tolist()
    began, thread, correlation = calls.start.tolist(), calls.thread.tolist(), calls.correlation.tolist()
    together = {events.main, *events.autograd}
    group = [events.main if each in together else each for each in thread]
    pending: dict[int, list[int]] = defaultdict(list)
    newest: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for call in np.flatnonzero(waits | np.isin(np.arange(len(calls)), list(launches))).tolist():
        if waits[call]:
            pending[group[call]].append(call)
            continue
        row = launches[call][0]
        kept = []
        for wait in pending[group[call]]:
            known = events.waits.by_correlation.get(correlation[wait])
            if known is not None and known[1] not in (NONE,) and known[1] >= 0:
                if known[0] != stream[row]:
                    kept.append(wait)
                    continue
                starts, rows = on_stream.get((device[row], known[1]), ([], []))
                at = bisect_right(starts, recorded.get(known[2], began[wait])) - 1
                sources = [rows[at]] if at >= 0 else []
            else:
                sources = [
                    source
                    for other, source in newest.items()
                    if other != lane[row]
                    and device[source] == device[row]
                    and began[activities.call[source]] <= began[wait]
                ]
            found += [(row, source) for source in sources if end[source] <= start[row] + NEAR_NS]
        pending[group[call]] = kept
        for each in launches[call]:
            newest[lane[each]] = each
    for rows in launches.values():
        found += _inside_graph(rows, lane, start, end)
    return found


def records(calls: Calls) -> dict[int, float]:
    """When each event was recorded, by correlation id of the call that did."""
    named = np.array([bool(_RECORD.search(text)) for text in calls.texts] or [False], bool)[calls.name]
    return {int(calls.correlation[row]): float(calls.start[row]) for row in np.flatnonzero(named)}


def _by_stream(activities: Activities, calls: Calls) -> dict[tuple[int, int], tuple[list[float], list[int]]]:
    """By (device, stream) the times of launches and the rows they launched, in the stream's order."""
    made: dict[tuple[int, int], tuple[list[float], list[int]]] = {}
    keys = zip(activities.device.tolist(), activities.stream.tolist(), activities.call.tolist(), strict=True)
    for row, (device, stream, call) in enumerate(keys):
        if call == NONE:
            continue
        starts, rows = made.setdefault((device, stream), ([], []))
        begin = float(calls.start[call])
        starts.append(max(begin, starts[-1]) if starts else begin)
        rows.append(row)
    return made


def _inside_graph(rows: list[int], lane: list[int], start: list[float], end: list[float]) -> list[tuple[int, int]]:
    """In one graph launch: the first activity of each further stream waits for what ended last before it."""
    if len(rows) < 2:
        return []
    seen = {lane[rows[0]]}
    found = []
    for row in rows[1:]:
        if lane[row] in seen:
            continue
        seen.add(lane[row])
        done = [other for other in rows if other != row and end[other] <= start[row] + NEAR_NS]
        if done:
            found.append((row, max(done, key=end.__getitem__)))
    return found


def _explain(activities: Activities, calls: Calls, made: Begins, explained: Floats) -> None:
    """Looks for what else could have held an activity up, where its launch and its streams do not say."""
    order = np.argsort(activities.end, kind="stable").tolist()
    ends = activities.end[order].tolist()
    for row in np.flatnonzero((made.extra > NEAR_NS) & (activities.call != NONE)).tolist():
        start, at = float(activities.start[row]), float(explained[row])
        source = _just_ended(activities, calls, order, ends, row, at)
        if source is not None:
            made.guessed.append((row, source))
            made.cross_gap[row] = start - activities.end[source]
            made.extra[row] = 0.0
        elif made.extra[row] > _RESOURCE_NS:
            holder = _holding(activities, order, ends, row, at)
            if holder is not None:
                made.room.append((row, holder, start - float(activities.end[holder])))
                made.extra[row] = 0.0


def _just_ended(
    activities: Activities, calls: Calls, order: list[int], ends: list[float], row: int, explained: float
) -> int | None:
    """An activity of another stream of the device that ended right before this one began, and was launched earlier."""
    start = float(activities.start[row])
    began = float(calls.start[activities.call[row]])
    at = bisect_right(ends, start + NEAR_NS) - 1
    while at >= 0 and ends[at] > start - _GUESS_NS and ends[at] > explained - NEAR_NS:
        source = order[at]
        at -= 1
        if source == row or activities.lane[source] == activities.lane[row]:
            continue
        if activities.device[source] != activities.device[row] or activities.start[source] >= start:
            continue
        launch = activities.call[source]
        if launch == NONE or calls.start[launch] < began:
            return source
    return None


def _holding(activities: Activities, order: list[int], ends: list[float], row: int, explained: float) -> int | None:
    """A kernel of another stream that held the device: its last blocks were draining when this one began."""
    start = float(activities.start[row])
    at = bisect_right(ends, start)
    while at < len(ends) and ends[at] < start + _RESOURCE_REACH_NS:
        source = order[at]
        at += 1
        length = float(activities.end[source] - activities.start[source])
        if (
            activities.lane[source] != activities.lane[row]
            and activities.device[source] == activities.device[row]
            and activities.kind[source] == 0
            and not activities.communication[source]
            and activities.start[source] < explained + NEAR_NS
            and ends[at - 1] - start <= max(_RESOURCE_SHARE * length, _RESOURCE_NS)
        ):
            return source
    return None
