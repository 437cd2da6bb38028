"""The Comparison of two revisions, as frozen data, and its JSON (schema 1, see docs/comparison.schema.json)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gpudoctor.diagnosis import Finding, Location, Run, Scope, Unit

SCHEMA = 1
Verdict = Literal["better", "same", "worse", "inconclusive"]
CounterVerdict = Literal["better", "same", "worse", "changed", "unstable", "not measured"]
FindingStatus = Literal["new", "fixed", "worse", "better", "same"]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two revisions.

    Attributes:
        label: what it was named: a path, or a revision of git.
        run: facts of its first run.
        step_ns: median unprofiled step of each of its runs that has one, in nanoseconds.
        runs: how many runs there are.
    """

    label: str
    run: Run
    step_ns: tuple[int, ...] = ()
    runs: int = 1


@dataclass(frozen=True, slots=True)
class LineChange:
    """A line that adds another amount to a counter than before.

    Attributes:
        file: path relative to the run's working folder when inside it.
        line: 1-based line in the head; in the base where the head has no such line.
        function: enclosing function.
        text: the statement.
        base: what it added; 0 when the line is new.
        head: what it adds; 0 when the line is gone.
        edited: the statement is new, or reads otherwise than in the base.
    """

    file: str
    line: int
    base: int
    head: int
    function: str | None = None
    text: str = ""
    edited: bool = False


@dataclass(frozen=True, slots=True)
class CounterChange:
    """One counter in both revisions.

    Attributes:
        name: as in Diagnosis.counters.
        title: what it counts.
        unit: events, bytes or floating point operations.
        scope: in one profiled step, or over the whole run.
        base: its value; null where not measured.
        head: likewise.
        verdict: worse or better (it decides), changed (it does not decide), same; unstable where it varies within a
            run or between runs of one revision; not measured.
        reason: why it does not decide, or is unstable or not measured; null otherwise.
        lines: lines that add another amount than before; largest increases first.
    """

    name: str
    title: str
    unit: Unit
    scope: Scope
    base: int | None
    head: int | None
    verdict: CounterVerdict
    reason: str | None = None
    lines: tuple[LineChange, ...] = ()

    @property
    def delta(self) -> int | None:
        """Head minus base; null where one is not measured."""
        return None if self.base is None or self.head is None else self.head - self.base


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that only one revision has, or that differs.

    Attributes:
        status: new, fixed, worse or better (it happens more or less often), same.
        finding: as the head has it; as the base has it when fixed.
        base: the base's, where both have it.
    """

    status: FindingStatus
    finding: Finding
    base: Finding | None = None


@dataclass(frozen=True, slots=True)
class Regression:
    """What one line of the head made worse.

    Attributes:
        where: the line; null when the counters have no lines.
        text: its statement.
        message: counters that rose, one sentence.
        counters: names of these counters, those that tell most first.
        findings: fingerprints of new or worse findings at the line.
        also: further places that the same change touches.
        fingerprint: stable over line moves.
    """

    where: Location | None
    text: str
    message: str
    counters: tuple[str, ...]
    findings: tuple[str, ...] = ()
    also: tuple[Location, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class TimeChange:
    """The step time in both revisions, one number a process run.

    Attributes:
        base_ns: median over the base's runs.
        head_ns: median over the head's runs.
        ratio: head over base: the median over the pairs, or of the medians.
        pairs: runs were made in pairs, one of each revision in turn.
        runs: pairs, or runs of the revision with fewer.
        p_value: exact two-sided permutation test over process runs; null with too few of them.
        verdict: slower or faster (significant, and beyond the least effect), no difference shown, too few runs.
    """

    base_ns: int
    head_ns: int
    ratio: float
    pairs: bool
    runs: int
    p_value: float | None
    verdict: Literal["slower", "faster", "no difference shown", "too few runs"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from base to head.

    Attributes:
        base: the revision before.
        head: the revision after.
        verdict: better, same, worse or inconclusive.
        sentence: the verdict in one or two sentences.
        counters: every counter that either revision has.
        regressions: what got worse, by line; those whose statement was edited first.
        findings: new, worse, fixed and better findings; those that stayed are left out.
        kept: how many findings stayed as they were.
        time: step times; null when not compared.
        time_refused: why step times are not compared; null when they are.
        inconclusive: why nothing is decided, a sentence each.
        caveats: what limits the comparison, a sentence each.
    """

    base: Side
    head: Side
    verdict: Verdict
    sentence: str
    counters: tuple[CounterChange, ...] = ()
    regressions: tuple[Regression, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    kept: int = 0
    time: TimeChange | None = None
    time_refused: str | None = None
    inconclusive: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    schema: int = SCHEMA
    gpudoctor: str = ""

    @property
    def worse(self) -> tuple[CounterChange, ...]:
        """Counters that decide for worse."""
        return tuple(change for change in self.counters if change.verdict == "worse")


def to_json(comparison: Comparison) -> str:
    """The Comparison as indented JSON text (schema 1), ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode() + "\n"


def comparison_schema() -> dict[str, Any]:
    """JSON Schema of the Comparison, as published in docs/comparison.schema.json."""
    return msgspec.json.schema(Comparison)
