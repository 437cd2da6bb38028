"""What a remedy changes in a run without it: operators, calls and activities, as edits of what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.synthetic.random_host import Timeline
from tests.synthetic.random_remedies import Remedied


@dataclass(frozen=True, slots=True)
class Touched:
    """What a remedy changes.

    Attributes:
        operators: numbers of operators (in `Timeline.operators`) that are taken out, their time and all in it.
        calls: correlations of runtime calls that are taken out, with or without their operator.
        activities: numbers of activities (in `Timeline.activities`) that do not happen any more.
        durations_ns: new durations of activities, by number.
        streams: new streams of activities, by number; they are waited for one step later, by an event.
        released: correlations of calls that stay, and do not wait for the device any more.
        free: correlations of calls that cost the host nothing any more, but for a wait for room in the queue.
        moved: correlations of stream waits that are made behind the last operator of backward instead.
        ranges: numbers of operators whose time goes while they stay (a DataLoader that has its batch).
    """

    operators: frozenset[int] = frozenset()
    calls: frozenset[int] = frozenset()
    activities: frozenset[int] = frozenset()
    durations_ns: Mapping[int, int] = field(default_factory=dict)
    streams: Mapping[int, int] = field(default_factory=dict)
    released: frozenset[int] = frozenset()
    free: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    ranges: frozenset[int] = frozenset()


def touched(timeline: Timeline, remedied: Remedied) -> Touched:
    """Compares what happened with what the repaired program would do."""
    operators = {one.key: one for step in remedied.steps for one in step}
    calls = {call.key: call for one in operators.values() for call in one.calls}
    works = {work.key: work for call in calls.values() for work in call.works}
    numbered = list(enumerate(timeline.activities))
    kept = [(at, activity.work, works[activity.work.key]) for at, activity in numbered if activity.work.key in works]
    old = [(made.correlation, made.call, calls[made.call.key]) for made in timeline.calls if made.call.key in calls]
    return Touched(
        operators=frozenset(
            at
            for at, made in enumerate(timeline.operators)
            if operators[made.operator.key].role == "gone" and made.operator.role != "gone"
        ),
        calls=frozenset(made.correlation for made in timeline.calls if made.call.key not in calls),
        activities=frozenset(at for at, activity in numbered if activity.work.key not in works),
        durations_ns={
            at: new.dur_ns + new.late_ns
            for at, work, new in kept
            if new.dur_ns + new.late_ns != work.dur_ns + work.late_ns
        },
        streams={at: new.stream for at, work, new in kept if new.stream != work.stream},
        released=frozenset(number for number, call, new in old if call.waits and not new.waits),
        free=frozenset(number for number, call, new in old if call.cost_ns and not new.cost_ns),
        moved=frozenset(number for number, call, _ in old if call.key in remedied.moved),
        ranges=frozenset(
            at
            for at, made in enumerate(timeline.operators)
            if made.operator.role == "loader" and operators[made.operator.key] is not made.operator
        ),
    )
