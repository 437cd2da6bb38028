"""Geometry of the chart of step times, ready to be written down by an SVG macro.

Horizontal positions are percentages and vertical ones pixels, so that the chart follows the width of its window while
its text keeps its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpudoctor.diagnosis import StepTime
from gpudoctor.reporters.wording import glued
from gpudoctor.units import format_count, format_ns, plural

HEIGHT = 180
"""Pixels from the axis to the top of the step chart."""

CUT_ABOVE = 4
"""Steps longer than this many median steps are cut: one compile of seconds would flatten steps of milliseconds."""

MOST_BARS = 200
"""Bars that can still be told apart in 1000 pixels; longer runs are drawn in groups of steps."""

_FEWEST_SLOTS = 12
_GAPS_UP_TO = 100
"""Bars that stand apart; more would leave gaps narrower than a pixel."""

_LABELLED_CUTS = 6
_LABEL_ROOM = 17.0
"""Per cent of the width that the label of a cut bar needs in a narrow window."""

_KINDS = ("bare", "light", "detail", "disturbed")


@dataclass(frozen=True, slots=True)
class Bar:
    """One step, or a group of them: `y` and `height` of the time without compiling, then of the compiling above it."""

    x: str
    width: str
    y: str
    height: str
    compile_y: str
    compile_height: str
    kind: str
    warmup: bool
    cut: bool
    middle: str
    right: str
    label: str
    anchor: str
    words: tuple[str, ...]

    @property
    def title(self) -> str:
        """The bar in words, for the pointer."""
        return ", ".join(word for word in self.words if word)


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis, what is written there, and which end of the text stands at the place."""

    at: str
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class StepChart:
    """The step times with their axes, and the sentences that say how they are drawn."""

    bars: tuple[Bar, ...]
    y_ticks: tuple[Tick, ...]
    x_ticks: tuple[Tick, ...]
    median: Tick | None
    kinds: tuple[str, ...]
    compiles: bool
    warmup: bool
    summary: str
    notes: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive steps that share a bar."""

    steps: tuple[StepTime, ...]

    @property
    def ns(self) -> float:
        return fmean(step.ns for step in self.steps)

    @property
    def compile_ns(self) -> float:
        return fmean(min(step.compile_ns, step.ns) for step in self.steps)

    @property
    def kind(self) -> str:
        kinds = {step.observation if step.observation in _KINDS else "other" for step in self.steps}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def name(self) -> str:
        first, last = self.steps[0].step, self.steps[-1].step
        return format_count(first) if first == last else f"{format_count(first)}–{format_count(last)}"


def step_chart(times: Sequence[StepTime], typical_ns: int | None, seen: int = 0) -> StepChart | None:
    """Bars, axes and notes for the steps; None when there are none.

    Args:
        times: the steps in order.
        typical_ns: median unprofiled step, drawn as a line; None draws no line and cuts by the median of all steps.
        seen: steps of the run, when more than `times` has.
    """
    if not times:
        return None
    size = -(-len(times) // MOST_BARS)
    groups = [_Group(tuple(times[i : i + size])) for i in range(0, len(times), size)]
    limit = CUT_ABOVE * (typical_ns or median(step.ns for step in times))
    kept = [group.ns for group in groups if group.ns <= limit] or [limit]
    ticks = _ticks(max(*kept, typical_ns or 0, 10))
    top = ticks[-1]
    cut = [group for group in groups if group.ns > top]
    bars = _bars(groups, top, size)
    return StepChart(
        bars=bars,
        y_ticks=tuple(Tick(_pixels(HEIGHT * (1 - value / top)), _round_time(value)) for value in ticks),
        x_ticks=_step_ticks(groups),
        median=Tick(_pixels(HEIGHT * (1 - typical_ns / top)), format_ns(typical_ns)) if typical_ns else None,
        kinds=tuple(kind for kind in (*_KINDS, "mixed", "other") if any(bar.kind == kind for bar in bars)),
        compiles=any(group.compile_ns for group in groups),
        warmup=any(bar.warmup for bar in bars),
        summary=glued(_summary(times, typical_ns, seen)),
        notes=tuple(glued(note) for note in _notes(cut, top, size)),
        columns=("steps" if size > 1 else "step", "mean time" if size > 1 else "time", "watched", "compiling", "notes"),
    )


def _bars(groups: list[_Group], top: float, size: int) -> tuple[Bar, ...]:
    slots = max(len(groups), _FEWEST_SLOTS)
    gap = 0.1 if slots <= _GAPS_UP_TO else 0.0
    bars: list[Bar] = []
    labelled_to, labels = -_LABEL_ROOM, 0
    for index, group in enumerate(groups):
        cut = group.ns > top
        middle = 100 * (index + 0.5) / slots
        label = ""
        if cut and labels < _LABELLED_CUTS and middle - _LABEL_ROOM / 2 >= labelled_to:
            label, labelled_to, labels = format_ns(group.ns), middle + _LABEL_ROOM / 2, labels + 1
        plain = min(group.ns - group.compile_ns, top) / top * HEIGHT
        full = min(group.ns, top) / top * HEIGHT
        warmup = all(step.warmup for step in group.steps)
        slowest = f"slowest {format_ns(max(step.ns for step in group.steps))}" if size > 1 else ""
        compiling = format_ns(group.compile_ns) if group.compile_ns else ""
        notes = ", ".join(
            word for word in ("warm-up" if warmup else "", "cut in the chart" if cut else "", slowest) if word
        )
        bars.append(
            Bar(
                x=_percent((index + gap) / slots),
                width=_percent((1 - 2 * gap) / slots),
                y=_pixels(HEIGHT - plain),
                height=_pixels(plain),
                compile_y=_pixels(HEIGHT - full),
                compile_height=_pixels(full - plain),
                kind=group.kind,
                warmup=warmup,
                cut=cut,
                middle=_percent(middle / 100),
                right=_percent((index + 1 - gap) / slots),
                label=label,
                anchor=_anchor(middle, _LABEL_ROOM / 2),
                words=(group.name, format_ns(group.ns), group.kind, compiling, notes),
            )
        )
    return tuple(bars)


def _ticks(highest: float) -> list[float]:
    """Round values from 0 up to the first at or above `highest`, three to six of them (steps of 1, 2 or 5)."""
    magnitude = 10 ** (len(str(int(highest))) - 1)
    step = next(m * magnitude / 10 for m in (1, 2, 5, 10, 20, 50) if highest <= 5 * m * magnitude / 10)
    count = max(2, -(-int(highest) // max(1, int(step))))
    return [step * n for n in range(count + 1)]


def _step_ticks(groups: list[_Group]) -> tuple[Tick, ...]:
    slots = max(len(groups), _FEWEST_SLOTS)
    every = next(n for n in (1, 2, 5, 10, 20, 25, 50, 100) if len(groups) <= 7 * n)
    places = [((index + 0.5) / slots, groups[index].steps[0].step) for index in range(0, len(groups), every)]
    return tuple(Tick(_percent(at), format_count(step), _anchor(100 * at, 4)) for at, step in places)


def _anchor(middle: float, room: float) -> str:
    """Which end of a text stands at `middle` (per cent), so that one which needs `room` on either side is not cut."""
    return "start" if middle < room else "end" if middle > 100 - room else "middle"


def _summary(times: Sequence[StepTime], typical_ns: int | None, seen: int) -> str:
    slowest = max(times, key=lambda step: step.ns)
    typical = f"; an unprofiled step takes {format_ns(typical_ns)} (median)" if typical_ns else ""
    shown = plural(len(times), "step")
    if seen > len(times):
        shown = f"The first {shown} of {format_count(seen)}"
    return f"{shown}{typical}; the slowest is step {slowest.step} with {format_ns(slowest.ns)}."


def _notes(cut: list[_Group], top: float, size: int) -> tuple[str, ...]:
    notes = []
    if size > 1:
        notes.append(f"Each bar is the mean of {format_count(size)} consecutive steps.")
    if cut:
        slowest = sorted(cut, key=lambda group: -group.ns)[:3]
        which = ", ".join(f"{group.name} ({format_ns(group.ns)})" for group in slowest)
        more = f" and {format_count(len(cut) - 3)} more" if len(cut) > 3 else ""
        bars = "1 bar is" if len(cut) == 1 else f"{format_count(len(cut))} bars are"
        noun = "step" if len(cut) == 1 and size == 1 else "steps"
        notes.append(f"{bars} cut at {_round_time(top)} and broken near the top: {noun} {which}{more}.")
    return tuple(notes)


def _round_time(ns: float) -> str:
    """A time that is round by construction, without the zeros that would claim digits."""
    number, unit = format_ns(ns).rsplit(" ", 1)
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}" if ns else "0"


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def _pixels(value: float) -> str:
    return f"{value:.1f}"
