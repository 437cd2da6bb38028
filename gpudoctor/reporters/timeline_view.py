"""What the page needs of the timeline: its data as JSON, colours of its kinds, and which findings lie on which line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gpudoctor.diagnosis import Timeline
from gpudoctor.reporters.wording import one_line
from gpudoctor.units import format_ns, plural

COLOURS = {
    "gemm": 1,
    "convolution": 1,
    "attention": 1,
    "forward": 2,
    "pointwise": 2,
    "normalisation": 2,
    "reduction": 2,
    "triton": 2,
    "embedding": 2,
    "backward": 3,
    "memcpy": 4,
    "memset": 4,
    "copy": 4,
    "transfer": 4,
    "sync": 5,
    "input": 5,
    "launch": 5,
    "communication": 6,
    "optimizer": 6,
    "python": 7,
    "compile": 7,
}
"""Colours of the page by kind; the others have the last."""

_GROUPS = (
    (1, "matrix products, convolutions, attention"),
    (2, "forward; other kernels"),
    (3, "backward"),
    (4, "copies and fills"),
    (5, "waiting: input, syncs, launches"),
    (6, "optimizer; communication"),
    (7, "Python, compiling"),
    (8, "other"),
)
NO_TIMELINE = "No profiled step was seen, so there is nothing to draw."
FROM_JSON = "A diagnosis read from JSON has no timeline: `gpudoctor report RECORDING` draws it."


@dataclass(frozen=True, slots=True)
class Kind:
    """What an event is, and its colour."""

    name: str
    colour: int


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The section: a sentence, the legend, and the data for the script (not yet escaped)."""

    summary: str
    legend: tuple[Kind, ...]
    data: str


def timeline_view(
    timeline: Timeline | None, findings: Mapping[str, Sequence[tuple[str, str]]], how: str
) -> TimelineView | None:
    """The section; None without a timeline.

    Args:
        timeline: the step.
        findings: (anchor, title) by `file:line`.
        how: how the step was profiled.
    """
    if timeline is None:
        return None
    kinds = [Kind(one_line(kind), COLOURS.get(kind, 8)) for kind in timeline.kinds]
    used = {kind.colour for kind in kinds}
    places = set(timeline.places)
    data = {
        "unit": timeline.unit_ns,
        "length": timeline.step_ns / timeline.unit_ns,
        "events": timeline.events,
        "lanes": [{"name": one_line(lane.name), "kind": lane.kind, "rows": lane.rows} for lane in timeline.lanes],
        "names": [one_line(name)[:200] for name in timeline.names],
        "kinds": [{"name": kind.name, "colour": kind.colour} for kind in kinds],
        "places": [one_line(place) for place in timeline.places],
        "memory": timeline.memory,
        "columns": timeline.columns,
        "findings": {one_line(place): found for place, found in findings.items() if place in places},
    }
    left = f"; {plural(timeline.left_out, 'shorter one')} left out" if timeline.left_out else ""
    return TimelineView(
        f"Step {timeline.step}, {format_ns(timeline.step_ns)}, {how}: {plural(timeline.events, 'event')}{left}.",
        tuple(Kind(words, colour) for colour, words in _GROUPS if colour in used),
        msgspec.json.encode(data).decode(),
    )
