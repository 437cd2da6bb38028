"""Edges of the dependency graph: their kinds, and where they are collected before nodes have their final numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.simulate.blocking import Wait
from gpudoctor.analysis.simulate.constants import Constants
from gpudoctor.analysis.simulate.events import NONE, Bools, Events, Floats, Ints
from gpudoctor.analysis.simulate.points import CALL_END, CALL_START, Points
from gpudoctor.analysis.simulate.streams import Begins

ORIGIN, PROGRAM, HAND, FEED, WAIT, SIDE, QUEUE, LAUNCH, STREAM, CROSS, ROOM, RUN, AHEAD, ENGINE = range(14)
"""Kinds of edges: a fixed time; the thread's order; the other thread's hand-over; when a worker process had a batch
ready; what a call waits for; what would be waited for were it moved to a stream of its own (without weight until it
is); room in the launch queue; launch to begin; end to begin on a stream; across streams; room on the device; begin to
end; what would wait for a copy of the step before, were copies made ahead, and which copy would come before another in
the one engine of their direction (both without weight until copies are moved)."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges by target, in nanoseconds.

    Attributes:
        source: node.
        target: node.
        anchored: weight, with the event's own latencies.
        constant: weight, with the trace's constants.
        kind: one of the numbers above.
        owner: row of what the edge belongs to: the point for edges between host points and for waits, else the
            activity that it leads to.
        peer: row of the activity it comes from; `NONE` otherwise.
        host: part of the weight that is the host's own time.
        opaque: part of the weight that nothing explains.
    """

    source: Ints
    target: Ints
    anchored: Floats
    constant: Floats
    kind: Ints
    owner: Ints
    peer: Ints
    host: Floats
    opaque: Floats

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def from_origin(cls, target: Ints, time: Floats) -> Edges:
        """Edges to nodes whose time nothing explains."""
        count = len(target)
        zero, none = np.zeros(count), np.full(count, NONE)
        return cls(np.zeros(count, np.int64), target, time, time, np.full(count, ORIGIN), none, none, zero, time)

    def and_also(self, other: Edges) -> Edges:
        """These and others."""
        pairs = zip(self._columns(), other._columns(), strict=True)
        return Edges(*(np.concatenate(pair) for pair in pairs))

    def at(self, rows: Ints) -> Edges:
        """Some of them, in this order."""
        return Edges(*(column[rows] for column in self._columns()))

    def _columns(self) -> list[NDArray[Any]]:
        return [getattr(self, each.name) for each in fields(self)]


@dataclass(frozen=True, slots=True)
class Known:
    """What edges are made of.

    Attributes:
        events: the events.
        points: host points.
        begins: what activities hung on.
        waits: what calls waited for, by row of the call.
        constants: the trace's.
        order: rows of launched activities in the order of their launches.
        tail: usual time from the end of what a synchronisation waited for to its return, ns.
    """

    events: Events
    points: Points
    begins: Begins
    waits: dict[int, Wait]
    constants: Constants
    order: Ints
    tail: float


class Collected:
    """Edges between nodes in their first numbering: origin, points, begins, ends.

    Attributes:
        known: what they are made of.
        start: number of the first begin.
        end: number of the first end.
        call_start: point of each call's begin.
        call_end: point of each call's end.
        stretch: stretch of profiled steps that each point lies in.
        device_stretch: the same of each activity.
    """

    def __init__(self, known: Known) -> None:
        self.known = known
        events, made = known.events, known.points
        self.start = 1 + len(made)
        self.end = self.start + len(events.activities)
        calls = len(events.calls)
        self.call_start, self.call_end = np.full(calls, NONE, np.int64), np.full(calls, NONE, np.int64)
        for kind, rows in ((CALL_START, self.call_start), (CALL_END, self.call_end)):
            at = np.flatnonzero(made.kind == kind)
            rows[made.ref[at]] = at
        self.stretch = events.stretch(made.time)
        self.device_stretch = events.stretch(events.activities.start)
        self._parts: list[tuple[Ints, Ints, Floats, Floats, Ints, Ints, Ints, Floats, Floats, Bools, Bools]] = []

    def add(
        self,
        kind: int,
        source: Ints,
        target: Ints,
        anchored: Floats,
        owner: Ints,
        *,
        constant: Floats | None = None,
        peer: Ints | None = None,
        host: Floats | None = None,
        opaque: Floats | None = None,
        guessed: bool = False,
        inferred: bool = False,
    ) -> None:
        """Adds edges of one kind; columns as in `Edges`.

        Args:
            kind: of all of them.
            source: node.
            target: node.
            anchored: weight with the event's own latencies.
            owner: what each belongs to.
            constant: weight with the trace's constants; the anchored one by default.
            peer: activity that each comes from.
            host: part of the weight that is the host's own time.
            opaque: part of the weight that nothing explains.
            guessed: only the times suggest them, and they could be otherwise.
            inferred: only the times suggest them.
        """
        count = len(source)
        zero = np.zeros(count)
        self._parts.append(
            (
                source,
                target,
                anchored,
                anchored if constant is None else constant,
                np.full(count, kind, np.int64),
                owner,
                np.full(count, NONE, np.int64) if peer is None else peer,
                zero if host is None else host,
                zero if opaque is None else opaque,
                np.full(count, guessed),
                np.full(count, guessed or inferred),
            )
        )

    def columns(self) -> tuple[Edges, Bools, Bools]:
        """All edges so far, which of them are guesses, and which only the times suggest."""
        *columns, guessed, inferred = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return Edges(*columns), guessed, inferred
