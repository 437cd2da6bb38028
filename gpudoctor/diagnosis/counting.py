"""Counts that do not depend on the machine's speed: what a review compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["count", "bytes", "FLOP"]
Scope = Literal["step", "run"]


@dataclass(frozen=True, slots=True)
class CountAt:
    """What one line of the user's code adds to a counter.

    Attributes:
        file: path relative to the run's working folder when inside it, else absolute.
        line: 1-based line.
        count: what it adds, in the counter's unit.
        function: enclosing function; null at module level.
        text: the line's statement without comments and extra blanks, which tells lines apart that moved.
    """

    file: str
    line: int
    count: int
    function: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Counter:
    """One count: of a profiled step, or of the whole run.

    Attributes:
        value: the count; null when it was not measured. Of a step: the last one that was profiled with lines.
        unit: what is counted: events, bytes or floating point operations.
        scope: whether it is counted in one step or over the whole run.
        repeats: it was equal in every profiled step; false: it varies, and says nothing about a change of the code.
        least: least of the profiled steps; null for counts of the run.
        most: most of them; null likewise.
        steps: how many profiled steps were counted; null likewise.
        lines: what each line adds, most first; empty where lines are not known.
        unknown: why it was not measured; null when it was.
    """

    value: int | None
    unit: Unit = "count"
    scope: Scope = "step"
    repeats: bool = True
    least: int | None = None
    most: int | None = None
    steps: int | None = None
    lines: tuple[CountAt, ...] = ()
    unknown: str | None = None
