"""Edges that lead to device activities: their launches, their streams, what they waited for, their durations."""

from __future__ import annotations

import numpy as np

from gpudoctor.analysis.simulate.constants import QUEUE
from gpudoctor.analysis.simulate.edges import AHEAD, CROSS, ENGINE, LAUNCH, ORIGIN, ROOM, RUN, STREAM, Collected
from gpudoctor.analysis.simulate.events import NONE, Bools, Ints
from gpudoctor.analysis.simulate.streams import OPAQUE_NS

_CERTAIN_NS = 5_000.0
"""An activity that begins this soon after another's end waited for it, also where no call says so."""


def add_device(edges: Collected) -> None:
    """Begins and ends of activities."""
    known = edges.known
    activities, started = known.events.activities, known.begins
    rows = np.arange(len(activities))
    launched = activities.call != NONE
    led = inherited(started.before, launched, activities.lane) & (started.before != NONE)
    fixed = rows[~launched & ~led]
    edges.add(
        ORIGIN, np.zeros(len(fixed), np.int64), edges.start + fixed, activities.start[fixed], fixed,
        opaque=activities.start[fixed],
    )  # fmt: skip
    _launches(edges, rows[launched & (activities.node == 0)])
    behind = rows[started.before != NONE]
    ours = launched[behind]
    ahead = started.before[behind]
    seen = np.where(led[behind], activities.start[behind] - activities.end[ahead], 0.0)
    extra = started.extra[behind] * ours
    opaque = np.where(seen > OPAQUE_NS, seen, started.opaque[behind] * ours)
    gap = np.where(ours, started.gap[behind], seen)
    usual = np.where(activities.node[behind] > 0, known.constants.graph_gap, known.constants.gap)
    usual = np.where(ours, usual, seen)
    edges.add(
        STREAM, edges.end + ahead, edges.start + behind, gap + extra, behind,
        constant=np.where(ours, usual + opaque, usual), peer=ahead, opaque=opaque,
    )  # fmt: skip
    copied = behind[activities.kind[ahead] == 1]
    never = np.full(len(copied), -np.inf)
    edges.add(AHEAD, np.zeros(len(copied), np.int64), edges.start + copied, never, copied, peer=started.before[copied])
    _engines(edges)
    _across(edges, CROSS, started.waited)
    near = started.cross_gap <= _CERTAIN_NS
    _across(edges, CROSS, [pair for pair in started.guessed if near[pair[0]]], inferred=True)
    _across(edges, CROSS, [pair for pair in started.guessed if not near[pair[0]]], guessed=True)
    _room(edges)
    length = activities.end - activities.start
    edges.add(RUN, edges.start + rows, edges.end + rows, length, rows)


def _engines(edges: Collected) -> None:
    """From each copy to the next in its direction: a device copies one at a time in each."""
    known = edges.known
    activities = known.events.activities
    rows = np.flatnonzero((activities.direction > 0) & (activities.call != NONE))
    key = activities.device[rows] * 16 + activities.direction[rows]
    order = np.lexsort((known.events.calls.start[activities.call[rows]], key)) if len(rows) else rows
    rows, key = rows[order], key[order]
    same = (key[1:] == key[:-1]) & (edges.device_stretch[rows][1:] == edges.device_stretch[rows][:-1])
    earlier, later = rows[:-1][same], rows[1:][same]
    never = np.full(len(later), -np.inf)
    edges.add(ENGINE, edges.end + earlier, edges.start + later, never, later, peer=earlier)


def _launches(edges: Collected, rows: Ints) -> None:
    known = edges.known
    activities, calls, started = known.events.activities, known.events.calls, known.begins
    call = activities.call[rows]
    extra, opaque = started.extra[rows], started.opaque[rows]
    usual = np.where(started.in_call[rows], started.latency[rows], known.constants.latency[activities.kind[rows]])
    at_end = started.at_end[rows]
    point = np.where(at_end, edges.call_end[call], edges.call_start[call])
    typical = known.constants.typical[calls.name[call]] if len(call) else np.empty(0)
    submit = np.where(at_end, 0.0, np.minimum(calls.end[call] - calls.start[call], typical))
    edges.add(
        LAUNCH, 1 + point, edges.start + rows, submit + started.latency[rows] + extra, rows,
        constant=submit + usual + opaque, host=submit, opaque=opaque,
    )  # fmt: skip


def _across(
    edges: Collected, kind: int, pairs: list[tuple[int, int]], *, guessed: bool = False, inferred: bool = False
) -> None:
    known = edges.known
    pairs = [pair for pair in pairs if edges.device_stretch[pair[0]] == edges.device_stretch[pair[1]]]
    if not pairs:
        return
    row, source = np.array(pairs, np.int64).T
    started = known.begins
    gap, extra, opaque = started.cross_gap[row], started.extra[row], started.opaque[row]
    edges.add(
        kind, edges.end + source, edges.start + row, gap + extra, row,
        constant=gap + opaque, peer=source, opaque=opaque, guessed=guessed, inferred=inferred,
    )  # fmt: skip


def _room(edges: Collected) -> None:
    known = edges.known
    if not known.begins.room:
        return
    row = np.array([row for row, _, _ in known.begins.room], np.int64)
    source = np.array([source for _, source, _ in known.begins.room], np.int64)
    offset = np.array([offset for _, _, offset in known.begins.room])
    edges.add(ROOM, edges.end + source, edges.start + row, offset, row, peer=source, guessed=True)


def inherited(before: Ints, launched: Bools, lane: Ints) -> Bools:
    """Activities that were launched before the recording began: no launch of any before them on their stream is known.

    They are work that the profiled steps inherit, at most as much as the launch queue holds; a pause between them
    stays unexplained. A missing launch further on, or a stream without any launch, is a gap in the recording.
    """
    found = ~launched
    for row in np.flatnonzero(found & (before != NONE)).tolist():  # a predecessor has a lower row
        found[row] = found[before[row]]
    for stream in np.unique(lane[found]).tolist():
        mine = lane == stream
        if not launched[mine].any() or int(found[mine].sum()) > QUEUE:
            found[mine] = False
    return found
