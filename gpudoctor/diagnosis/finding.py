"""Findings: what is wrong, where, what a fix is worth, and the rules that found nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
Grade = Literal["measured", "simulated", "estimated"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
COMPILE_TIME = "compile time spread"
"""How the basis of a saving begins that lies outside the steady step: time that compiling added to some steps."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's code.

    Attributes:
        file: path relative to the run's working folder when inside it, else absolute.
        line: 1-based line.
        precision: "call" (this very line called it) or "def" (only the function is known).
        function: enclosing function, null at module level or when unknown.
        module: path or class of the nn.Module that ran it.
        role: what the place is to the finding, e.g. "break", "caller", "torch.compile", "DataLoader".
    """

    file: str
    line: int
    precision: str = "call"
    function: str | None = None
    module: str | None = None
    role: str | None = None

    def __str__(self) -> str:
        between = " line " if self.file.startswith("cell ") else ":"  # a notebook's cell
        return f"{self.file}{between}{self.line}"


@dataclass(frozen=True, slots=True)
class Saving:
    """What a fix is worth in nanoseconds a step, with its grade: an upper bound, or what a model says.

    Attributes:
        ns_per_step: what a fix saves in a step: replayed without it, or the time that the finding owns.
        share: the same as a share (0 to 1) of the step time.
        grade: measured, simulated or estimated; no grade, no number.
        basis: how the number came about, one phrase; one that begins with "model" makes no upper bound.
        low_ns: least that it saves when what the replay had to guess is varied; null when nothing was replayed.
        high_ns: most that it saves; null likewise.
        adds_ns: what it still saves once the findings above it are fixed; null likewise.
        memory_bytes: device memory that a fix gives back at the peak; null when that is not what it saves.
        compile_ns: compile time of the whole run that a fix takes away; null likewise.
    """

    ns_per_step: int
    share: float
    grade: Grade = "estimated"
    basis: str = "upper bound: the time the finding owns"
    low_ns: int | None = None
    high_ns: int | None = None
    adds_ns: int | None = None
    memory_bytes: int | None = None
    compile_ns: int | None = None

    @property
    def of_time(self) -> bool:
        """Whether it is time of the steps, and not only memory or compile time."""
        return self.ns_per_step > 0 or (self.memory_bytes is None and self.compile_ns is None)

    @property
    def of_compiling(self) -> bool:
        """Whether it is time that compiling adds to some steps, and so no part of a steady step."""
        return self.basis.startswith(COMPILE_TIME)

    @property
    def is_bound(self) -> bool:
        """Whether no fix can save more; a model's number may be off in both directions, a measured one is neither."""
        return self.grade != "measured" and not self.basis.startswith("model")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A small table of what was measured: column titles (unit included) and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """How a remedy's diff is made, so that `gpudoctor fix` can make it again beside others.

    Attributes:
        kind: kind of edit, e.g. "keywords" (docs/rules.md lists them).
        file: the file, relative to the run's working folder.
        line: 1-based line that the edit is about.
        values: what the kind's keys hold.
        sha256: of the file's text as it was recorded, in UTF-8.
        also: further lines that the same edit is made on.
    """

    kind: str
    file: str
    line: int
    values: dict[str, str | int | tuple[str, ...] | dict[str, str]]
    sha256: str
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that helps.

    Attributes:
        name: its name in the rule.
        text: what to do, Markdown.
        diff: unified diff against the user's file; null where the change is not certain.
        risk: numerics, memory, reproducibility; null when none is known.
        change: how the diff is made; null without one.
    """

    name: str
    text: str
    diff: str | None = None
    risk: str | None = None
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of an excerpt."""

    number: int
    text: str
    culprit: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem in this run, on one line of the user's code.

    Attributes:
        rule: rule id, e.g. GD101.
        name: rule name, e.g. graph-break.
        title: the rule's title, a sentence.
        severity: error (≥ 20 % of the step), warning (≥ 3 %), info; the rule's default where only counts are known.
        message: the claim with its number, one or two sentences.
        where: the line to look at.
        locations: other places that belong to it, most telling first.
        count: how often it happened (in the unit the message gives).
        saving: what a fix is worth; null when it cannot be priced.
        evidence: what was measured.
        remedy: what to do.
        excerpt: source lines around `where`.
        fingerprint: stable over line moves and measured values.
        explained_by: fingerprint of the finding that is its cause; null when it stands for itself.
        because: why that one is its cause.
        children: fingerprints of the findings that this one explains.
        accepted: why it does not count (suppression or stated intent); null when it counts.
        when_wrong: when the rule misleads.
    """

    rule: str
    name: str
    title: str
    severity: Severity
    message: str
    where: Location | None = None
    locations: tuple[Location, ...] = ()
    count: int | None = None
    saving: Saving | None = None
    evidence: tuple[Evidence, ...] = ()
    remedy: Remedy | None = None
    excerpt: tuple[SourceLine, ...] = ()
    fingerprint: str = ""
    explained_by: str | None = None
    because: str | None = None
    children: tuple[str, ...] = ()
    accepted: str | None = None
    when_wrong: str | None = None

    @property
    def replayed(self) -> bool:
        """Whether its fix is one of those that were replayed together."""
        return self.saving is not None and self.saving.adds_ns is not None


def appliable(finding: Finding) -> bool:
    """Whether a finding counts and its remedy is a change that `gpudoctor fix` can make."""
    return finding.accepted is None and finding.remedy is not None and finding.remedy.change is not None


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A rule that could not be judged: why, and how to get what it needs. Never the same as passed."""

    rule: str
    name: str
    reason: str
    how: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A rule that was judged on this run and found nothing."""

    rule: str
    name: str
    title: str
