"""What every report of a Comparison says in the same words."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.compare import Comparison, CounterChange, FindingChange, Side, TimeChange
from gpudoctor.counting import amount
from gpudoctor.reporters.wording import one_line, place
from gpudoctor.units import format_ns, format_share, plural

MARKS = {"worse": "worse", "better": "better", "same": "same", "changed": "changed", "unstable": "varies"}
STATUS = {"new": "new", "worse": "more often", "fixed": "gone", "better": "less often"}


@dataclass(frozen=True, slots=True)
class CounterRow:
    """A counter as it is shown: title, both amounts, difference, verdict and why it does not decide."""

    title: str
    base: str
    head: str
    delta: str
    verdict: str
    reason: str


def sides(comparison: Comparison) -> str:
    """The two revisions: `main (2 runs) → HEAD (2 runs)`."""
    return f"{_side(comparison.base)} → {_side(comparison.head)}"


def _side(side: Side) -> str:
    runs = f" ({plural(side.runs, 'run')})" if side.runs > 1 else ""
    return f"{one_line(side.label)}{runs}"


def rows(comparison: Comparison, differing: bool) -> tuple[CounterRow, ...]:
    """Counters that differ or vary, or those that are the same in both; what neither measured is in neither."""
    return tuple(
        row(change)
        for change in comparison.counters
        if change.verdict != "not measured" and (change.verdict != "same") == differing
    )


def row(change: CounterChange) -> CounterRow:
    """One counter as it is shown."""
    delta = change.delta
    shown = "" if delta is None else "0" if not delta else ("+" if delta > 0 else "-") + amount(abs(delta), change.unit)
    return CounterRow(
        one_line(change.title),
        amount(change.base, change.unit),
        amount(change.head, change.unit),
        shown,
        MARKS.get(change.verdict, change.verdict),
        one_line(change.reason or ""),
    )


def same(comparison: Comparison) -> str:
    """How many counters stayed, and how many nobody measured."""
    equal = sum(change.verdict == "same" for change in comparison.counters)
    unknown = sum(change.verdict == "not measured" for change in comparison.counters)
    said = f"{plural(equal, 'counter')} the same in both"
    return f"{said}, {unknown} not measured." if unknown else f"{said}."


def time(comparison: Comparison) -> str:
    """What is to be said of the step time, one or two sentences."""
    if comparison.time_refused:
        return f"Step times are not compared: {one_line(comparison.time_refused)}."
    change = comparison.time
    if change is None:
        return "Step times are not compared: a revision has no step without the profiler."
    runs = "pairs" if change.pairs else "runs of each"
    times = f"{format_ns(change.base_ns)} → {format_ns(change.head_ns)}"
    if change.p_value is None:
        least = 6 if change.pairs else 4
        return f"Step time {times}; not judged: {change.runs} {runs}, a verdict needs {least} or more."
    return f"Step time {times}, {_effect(change)} ({change.runs} {runs}, p = {change.p_value:.3f})."


def _effect(change: TimeChange) -> str:
    if change.verdict == "no difference shown":
        return f"no difference of 3 % or more shown ({change.ratio - 1:+.1%})"
    return f"{format_share(abs(change.ratio - 1))} {change.verdict}"


def finding(change: FindingChange) -> str:
    """A finding that changed, one line."""
    found = change.finding
    where = f"{place(found.where)}: " if found.where else ""
    return f"{found.rule} {where}{one_line(found.title)}"
