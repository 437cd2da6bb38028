"""A rule as frozen data: what one rule file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpudoctor.diagnosis import Severity
from gpudoctor.engine.edits.kinds import EditValue

Status = Literal["stable", "preview"]
Horizon = Literal["step", "epoch", "run"]
EditKind = Literal["drop", "scale", "merge", "unblock", "overlap", "launch", "align"]
EventsOf = Literal["kernels", "ops", "runtime_calls", "kernel_runs", "loaders", "all"]
Observation = Literal["bare", "light", "detail"]
Value = int | float | str | bool
Share = Literal["place", "function", "run", "rule"]

SECTIONS = (
    "Message",
    "What it means",
    "Why it costs time",
    "How to fix",
    "When this is wrong",
    "References",
    "Examples",
)
"""The sections that every rule file has."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that decides something: its value, unit and reason."""

    value: Value
    unit: str
    doc: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Another rule whose finding explains this rule's.

    Attributes:
        rule: id of the other rule.
        share: what the two findings have in common: a place (a line of either, other locations included), the
            function they point at, or only the run (then the cause must be worth at least as much); `rule` where any
            finding of the other rule explains this one, whatever it is worth.
        because: why the one explains the other, half a sentence.
    """

    rule: str
    share: Share
    because: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The edit of the replayed steps that shows what a fix saves.

    Attributes:
        edit: what becomes of the events (`gpudoctor/analysis/simulate/targets.py` says what each kind does).
        events: the table that the ids in the column `events` are of; `all` for every launch, without ids.
        doubt: share of the saving that the edit's own assumptions leave open, 0 to 1.
        remedies: by remedy: another kind of edit.
    """

    edit: EditKind
    events: EventsOf = "kernels"
    doubt: float = 0.0
    remedies: Mapping[str, EditKind] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the user's file. Where it is not certain, no diff is offered.

    Attributes:
        kind: one of the kinds that `edits/kinds.py` declares.
        values: what the kind's keys hold; texts may use the row's columns (`{{ _workers }}`).
        at: role of the location that it is about; None means the finding's own line.
        every: it is about all locations of that role, which must lie in one file, not the first one only.
        when: a column that must hold something else than null or false, or there is no diff.
    """

    kind: str
    values: Mapping[str, EditValue]
    at: str | None = None
    when: str | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class RemedyText:
    """What a rule proposes: text for people (may use the row's columns), its risk, and the edit when there is one."""

    name: str
    text: str
    risk: str | None = None
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """Tiny tables and what the rule makes of them.

    Attributes:
        title: the paragraph above the block, one line.
        expect: number of findings; 0 for a good example.
        tables: rows by table name.
        facts: the profile's facts.
        sources: text of the user's files.
        findings: what the findings must have, in their order: a part of each, by field name.
        line: line of the block in the rule file.
    """

    title: str
    expect: int
    tables: Mapping[str, tuple[Mapping[str, Any], ...]]
    facts: Mapping[str, Any]
    sources: Mapping[str, str]
    findings: tuple[Mapping[str, Any], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule file.

    Attributes:
        id: e.g. GD101; never changes.
        name: kebab-case, e.g. graph-break.
        title: one sentence.
        since: version that brought it.
        status: stable, or preview (off unless asked for).
        horizon: what must have been seen for silence to mean anything: a step, an epoch's end, the run.
        requires: tables without which it is not measured.
        optional: tables that it reads when they were measured, else empty.
        observation: how steps must have been watched; None when the rule reads no steps.
        min_steps: how many of them, outside warm-up.
        instead: where one of these tables was measured, steps watched in any mode do.
        severity: where only counts are known.
        max_severity: never above this; None means no cap.
        explained_by: rules whose findings explain this rule's.
        evidence_title: what the table of the column `evidence` is called.
        thresholds: by name, in the file's order.
        what_if: the edit that the replay makes of the rows' events; None when it is not priced by a replay.
        remedies: by name, in the file's order; the first is the default.
        sql: the query.
        sections: Markdown text by section title.
        examples: in the file's order.
        path: where it was read from.
    """

    id: str
    name: str
    title: str
    since: str
    status: Status
    horizon: Horizon
    requires: tuple[str, ...]
    optional: tuple[str, ...]
    observation: Observation | None
    min_steps: int
    instead: tuple[str, ...]
    severity: Severity
    max_severity: Severity | None
    explained_by: tuple[Cause, ...]
    evidence_title: str
    thresholds: Mapping[str, Threshold]
    what_if: WhatIf | None
    remedies: Mapping[str, RemedyText]
    sql: str
    sections: Mapping[str, str]
    examples: tuple[Example, ...]
    path: Path

    @property
    def message(self) -> str:
        """The Jinja template of a finding's message."""
        return self.sections["Message"]

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables that the query may read."""
        return (*self.requires, *self.optional)
