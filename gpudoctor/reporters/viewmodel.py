"""What the page shows, in the order it shows it: text, numbers with their units and ready geometry.

The templates compute nothing: they only place what stands here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from markupsafe import Markup

from gpudoctor.diagnosis import CriticalPath, Diagnosis, Evidence, Finding, Location, Remedy, Severity
from gpudoctor.reporters import counter_words, diff, path_words, prose, savings, wording, work_view
from gpudoctor.reporters.budget_bar import BudgetBar, budget_bar
from gpudoctor.reporters.compile_view import CompileView, compile_view
from gpudoctor.reporters.memory_view import MemoryView, memory_view
from gpudoctor.reporters.step_chart import StepChart, step_chart
from gpudoctor.reporters.timeline_view import FROM_JSON, NO_TIMELINE, TimelineView, timeline_view
from gpudoctor.reporters.wording import code_line, code_word, glued, one_line, place
from gpudoctor.reporters.work_view import WorkRow
from gpudoctor.units import format_count, plural

OPEN = 3
"""Findings that are open when the page is; the others show their head line."""

IN_FULL = 100
"""Findings with source, fix and evidence; a page with more would be too large to read and to send."""

EVIDENCE_ROWS = 25

_NUMBER = re.compile(r"–|[<>≤≥≈±~+\-− ]*\d[\d\s.,]*\s?(%|[nµum]?s|B|[KMGT]iB|[x×])?")


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A place in the code and what is known about it."""

    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of source: its number right-aligned, its text, and whether it is the one to look at."""

    number: str
    text: str
    culprit: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """A small table; `numeric` says which columns are numbers and stand on the right."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Markup, ...], ...]
    left_out: str


@dataclass(frozen=True, slots=True)
class FixView:
    """What to do: text, the change as a diff when it is certain, and what it may cost."""

    text: Markup
    diff: tuple[diff.DiffLine, ...]
    risk: Markup | None


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding."""

    anchor: str
    open: bool
    severity: Severity
    rule: str
    name: str
    title: Markup
    where: PlaceView | None
    message: Markup
    saving: str
    share: str
    grade: str
    grade_word: str
    addition: str
    basis: Markup | None
    excerpt: tuple[Row, ...]
    locations: tuple[PlaceView, ...]
    fix: FixView | None
    evidence: tuple[TableView, ...]
    because: Markup | None
    children: tuple[FindingView, ...]
    when_wrong: Markup | None
    apply: str
    recheck: str
    suppress: str
    accepted: Markup | None


@dataclass(frozen=True, slots=True)
class UnjudgedView:
    """Rules that miss the same thing."""

    rules: tuple[tuple[str, str], ...]
    reason: Markup
    how: Markup


@dataclass(frozen=True, slots=True)
class PathView:
    """What the step hangs on."""

    title: str
    source: str
    owners: tuple[path_words.Owner, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything on the page."""

    title: str
    script: str
    words: tuple[str, ...]
    started: str
    started_iso: str
    verdict: Markup
    facts: tuple[wording.Fact, ...]
    budget: BudgetBar | None
    budget_note: str
    path: PathView | None
    memory: MemoryView | None
    judged_by_steps: bool
    compilation: CompileView | None
    work: tuple[WorkRow, ...]
    work_title: str
    work_source: str
    timeline: TimelineView | None
    no_timeline: str
    trust: str
    together: path_words.Together | None
    caveats: tuple[Markup, ...]
    findings: tuple[FindingView, ...]
    brief: tuple[FindingView, ...]
    counts: str
    ranking: str
    nothing_found: str
    steps: StepChart | None
    step_source: str
    accepted: tuple[FindingView, ...]
    unjudged: tuple[UnjudgedView, ...]
    unjudged_count: str
    none_unjudged: str
    passed: tuple[tuple[str, str], ...]
    counts_by_name: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    version: str


def page(diagnosis: Diagnosis) -> Page:
    """The page of a diagnosis."""
    run = diagnosis.run
    anchors = _Anchors()
    views = [_finding(diagnosis, finding, anchors, index < OPEN) for index, finding in enumerate(diagnosis.roots)]
    accepted = [f for f in diagnosis.findings if f.accepted is not None]
    accepted_views = [_finding(diagnosis, finding, anchors, False) for finding in accepted]
    verdict = wording.verdict(diagnosis)
    return Page(
        title=f"{one_line(run.script)} · gpudoctor",
        script=wording.script_words(run),
        words=wording.run_words(run),
        started=_started(run.started),
        started_iso=one_line(run.started or ""),
        verdict=prose.inline(verdict),
        facts=tuple(replace(f, value=glued(f.value), note=glued(f.note)) for f in wording.facts(diagnosis)),
        budget=budget_bar(diagnosis.budget) if diagnosis.budget and diagnosis.budget.shares else None,
        budget_note=wording.budget_note(diagnosis),
        path=_path(diagnosis.critical_path) if diagnosis.critical_path else None,
        memory=memory_view(diagnosis.memory),
        judged_by_steps=run.source != "snapshot",
        compilation=compile_view(diagnosis),
        work=work_view.rows(diagnosis),
        work_title=work_view.title(diagnosis),
        work_source=work_view.source(diagnosis),
        timeline=timeline_view(diagnosis.timeline, _by_place([*views, *accepted_views]), _observed(diagnosis)),
        no_timeline=_no_timeline(diagnosis),
        trust=glued(path_words.trust(diagnosis)),
        together=path_words.together(diagnosis),
        caveats=tuple(prose.inline(caveat) for caveat in wording.caveats(diagnosis)),
        findings=tuple(views[:IN_FULL]),
        brief=tuple(views[IN_FULL:]),
        counts=wording.count_by_severity(diagnosis.live),
        ranking=", ranked by what a fix is worth. Savings overlap: they do not add up." if len(views) > 1 else ".",
        nothing_found=wording.nothing_found(diagnosis),
        steps=step_chart(diagnosis.step_times, run.step_ns, run.steps),
        step_source=one_line(run.step_source or ""),
        accepted=tuple(accepted_views),
        unjudged=tuple(
            UnjudgedView(
                tuple((one_line(rule.rule), one_line(rule.name)) for rule in group.rules),
                prose.inline(group.reason),
                prose.inline(group.how),
            )
            for group in wording.unjudged(diagnosis)
        ),
        unjudged_count=plural(len(diagnosis.not_measured), "rule"),
        none_unjudged="Every rule was judged." if wording.judged_rules(diagnosis) else "No rule was asked for.",
        passed=tuple((one_line(rule.rule), one_line(rule.title)) for rule in diagnosis.passed),
        counts_by_name=counter_words.rows(diagnosis),
        environment=tuple((one_line(key), one_line(value)) for key, value in run.environment.items()),
        version=one_line(diagnosis.gpudoctor),
    )


def _by_place(views: Sequence[FindingView]) -> dict[str, list[tuple[str, str]]]:
    """Anchor and rule of the findings by their place."""
    found: dict[str, list[tuple[str, str]]] = {}
    for view in views:
        if view.where is not None:
            found.setdefault(view.where.path, []).append((view.anchor, f"{view.rule} {view.name}"))
    return found


def _observed(diagnosis: Diagnosis) -> str:
    return "as recorded" if diagnosis.run.source != "run" else "under the profiler"


def _no_timeline(diagnosis: Diagnosis) -> str:
    """Why there is no timeline."""
    return NO_TIMELINE if diagnosis.budget is None else FROM_JSON


def _path(path: CriticalPath) -> PathView:
    said = path_words.source(path)
    return PathView(path_words.TITLE, said[0].upper() + said[1:], path_words.owners(path))


class _Anchors:
    """Ids for permalinks: a finding's fingerprint, made safe, and unique on the page."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def take(self, finding: Finding) -> str:
        """The next free id for a finding."""
        anchor = re.sub(r"[^A-Za-z0-9_-]+", "-", finding.fingerprint or finding.rule).strip("-") or "finding"
        self._seen[anchor] += 1
        repeat = self._seen[anchor]
        return f"f-{anchor}" if repeat == 1 else f"f-{anchor}.{repeat}"


def _finding(diagnosis: Diagnosis, finding: Finding, anchors: _Anchors, is_open: bool) -> FindingView:
    saving = finding.saving
    rule = code_word(finding.rule)
    return FindingView(
        anchor=anchors.take(finding),
        open=is_open,
        severity=finding.severity,
        rule=one_line(finding.rule),
        name=one_line(finding.name),
        title=prose.inline(finding.title),
        where=_place(finding.where) if finding.where else None,
        message=prose.inline(finding.message),
        saving=savings.amount(saving) if saving else "",
        share=savings.share(saving) if saving else "",
        grade=savings.grade(saving) if saving else "",
        grade_word=saving.grade if saving else "",
        addition=glued(savings.addition(saving)) if saving else "",
        basis=prose.inline(saving.basis) if saving and saving.basis else None,
        excerpt=_excerpt(finding),
        locations=tuple(_place(location) for location in finding.locations),
        fix=_fix(finding.remedy) if finding.remedy else None,
        evidence=tuple(_table(evidence) for evidence in finding.evidence),
        because=prose.inline(finding.because) if finding.because else None,
        children=tuple(_finding(diagnosis, child, anchors, False) for child in diagnosis.explained(finding))
        if finding.explained_by is None
        else (),
        when_wrong=prose.blocks(finding.when_wrong) if finding.when_wrong else None,
        apply=wording.fix_command(diagnosis.run, finding),
        recheck=wording.command(diagnosis.run, "--select", rule),
        suppress=f"# gpudoctor: ignore[{rule}] reason",
        accepted=prose.inline(finding.accepted) if finding.accepted is not None else None,
    )


def _place(where: Location) -> PlaceView:
    words = [one_line(where.role)] if where.role else []
    if where.function:
        words.append(f"in {one_line(where.function)}")
    if where.module:
        words.append(f"module {one_line(where.module)}")
    if where.precision == "def":
        words.append("the function is known, not the line")
    return PlaceView(place(where), ", ".join(words))


def _excerpt(finding: Finding) -> tuple[Row, ...]:
    width = max((len(str(line.number)) for line in finding.excerpt), default=0)
    return tuple(Row(f"{line.number:>{width}}", code_line(line.text), line.culprit) for line in finding.excerpt)


def _fix(remedy: Remedy) -> FixView:
    changed = diff.parse(remedy.diff) if remedy.diff else ()
    return FixView(prose.blocks(remedy.text), changed, prose.inline(remedy.risk) if remedy.risk else None)


def _table(evidence: Evidence) -> TableView:
    width = max([len(evidence.columns), *(len(row) for row in evidence.rows)])
    shown = evidence.rows[:EVIDENCE_ROWS]
    rows = [tuple(one_line(cell) for cell in (*row, *[""] * (width - len(row)))) for row in shown]
    columns = tuple(one_line(column) for column in (*evidence.columns, *[""] * (width - len(evidence.columns))))
    numeric = tuple(
        any(column) and all(_NUMBER.fullmatch(c) for c in column if c) for column in zip(*rows, strict=True)
    )
    left_out = len(evidence.rows) - len(rows)
    return TableView(
        title=one_line(evidence.title),
        columns=columns,
        numeric=numeric or (False,) * width,
        rows=tuple(tuple(prose.inline(cell) for cell in row) for row in rows),
        left_out=f"{format_count(left_out)} more rows are in diagnosis.json." if left_out else "",
    )


def _started(text: str | None) -> str:
    """A start time to the minute with its zone; as it is when it is not ISO 8601."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return one_line(text)
    zone = moment.strftime(" UTC%z") if moment.tzinfo else ""
    return moment.strftime("%Y-%m-%d %H:%M") + zone.removesuffix("+0000")
