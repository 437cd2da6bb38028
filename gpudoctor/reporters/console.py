"""The report in the terminal: what an expert in a hurry reads in ten seconds.

Never wider than asked for, readable without colour, and no string of the run is ever read as markup.
"""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpudoctor.diagnosis import Diagnosis, Finding, Remedy, Severity
from gpudoctor.reporters import compile_section, diff, memory_section, path_section, savings, wording
from gpudoctor.reporters.terminal import Paper, encodable
from gpudoctor.reporters.wording import one_line, place
from gpudoctor.units import format_count, format_ns, plural

WIDTH = 80
"""Columns at most: the report is often read in a split window or a CI log."""

_IN_FULL = 10
"""Findings shown with their fix; the ones after it get one line, so that the first stay on the screen."""

_ALIGNED = 64
"""Columns below which the facts are sentences, not columns."""

_ONE_LINERS = 30
_DIFF_LINES = 8
_BAR = 24

_IDS = 8
"""Rules named of a group that was not measured; JSON and the page have all."""

_STYLE: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


def render(diagnosis: Diagnosis, width: int = WIDTH, color: bool = False) -> str:
    """The report as text.

    Args:
        diagnosis: what to report.
        width: columns that no line exceeds; at most `WIDTH` are used.
        color: whether to write ANSI colours.
    """
    paper = Paper(min(width, WIDTH), color)
    _headline(paper, diagnosis)
    _budget(paper, diagnosis)
    path_section.write(paper, diagnosis)
    _caveats(paper, wording.caveats(diagnosis))
    compile_section.write(paper, diagnosis.compilation, diagnosis.what_if)
    memory_section.write(paper, diagnosis.memory)
    _findings(paper, diagnosis)
    _rest(paper, diagnosis)
    return paper.text


def print_report(diagnosis: Diagnosis, file: TextIO) -> None:
    """Writes the report to a stream: as wide as its terminal, in colour unless that is none or `NO_COLOR` is set."""
    terminal = file.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((WIDTH, 24)).columns if terminal else WIDTH
    file.write(encodable(render(diagnosis, width, color), file.encoding or "utf-8"))


def _headline(paper: Paper, diagnosis: Diagnosis) -> None:
    what = " · ".join((wording.script_words(diagnosis.run), *wording.run_words(diagnosis.run)))
    paper.line(Text.assemble(("gpudoctor", "bold"), "  ", what))
    paper.gap()
    paper.line(Text(wording.verdict(diagnosis), "bold"))
    paper.gap()
    facts = wording.facts(diagnosis)
    label = max(len(fact.label) for fact in facts)
    value = max(len(fact.value) for fact in facts)
    tight = paper.width < _ALIGNED
    for fact in facts:
        if tight:
            paper.line(Text(f"{fact.label}: {fact.value}, {fact.note}"), hang=2)
            continue
        shown = (f"{fact.value:<{value}}", "bold" if fact.known else "")
        row = Text.assemble((f"{fact.label:<{label}}  ", "dim"), shown, (f"  {fact.note}", "dim"))
        paper.line(row, hang=label + value + 4)


def _budget(paper: Paper, diagnosis: Diagnosis) -> None:
    budget = diagnosis.budget
    if diagnosis.run.source == "snapshot":
        return
    paper.gap()
    if budget is None or not budget.shares:
        paper.line(Text(f"Where the time goes: {wording.NOT_MEASURED}, no profiled step shows it"))
        return
    paper.line(Text.assemble(("Where the time goes", "bold"), (f"  {wording.budget_source(budget)}", "dim")), hang=2)
    names = [one_line(share.owner) for share in budget.shares]
    column = min(max(map(cell_len, names)), max(8, paper.width - 22))
    bar = min(_BAR, paper.width - column - 24)
    longest = max(share.ns for share in budget.shares) or 1
    for name, share, percentage in zip(names, budget.shares, wording.budget_percentages(budget), strict=True):
        row = Text(f"  {set_cell_size(name, column)} {format_ns(share.ns):>9} {percentage:>7}")
        if bar >= 8:
            row.append("  " + "█" * round(bar * share.ns / longest), "cyan")
        paper.line(row)
    if note := wording.budget_note(diagnosis):
        paper.line(Text(note, "dim"), indent=2)


def _caveats(paper: Paper, caveats: tuple[str, ...]) -> None:
    if caveats:
        paper.gap()
    for caveat in caveats:
        paper.line(Text(f"note: {one_line(caveat)}"), hang=6)


def _findings(paper: Paper, diagnosis: Diagnosis) -> None:
    paper.gap()
    live = diagnosis.roots
    if not live:
        paper.line(Text(wording.nothing_found(diagnosis)))
        paper.gap()
    for finding in live[:_IN_FULL]:
        _finding(paper, finding)
        for other in diagnosis.explained(finding):
            _explained(paper, other)
        paper.gap()
    brief = live[_IN_FULL : _IN_FULL + _ONE_LINERS]
    for finding in brief:
        _head(paper, finding, cut=True)
    left = len(live) - _IN_FULL - len(brief)
    if left > 0:
        paper.line(Text(f"… and {plural(left, 'more finding')}; all of them are in the report"))
    if brief:
        paper.gap()
    path_section.write_together(paper, diagnosis)


def _head(paper: Paper, finding: Finding, cut: bool = False) -> None:
    head = Text.assemble((finding.severity, _STYLE[finding.severity]), f" {one_line(finding.rule)} ")
    if finding.where:
        head.append(place(finding.where), "cyan").append("  ")
    head.append(one_line(finding.title), "bold")
    if cut:
        head.truncate(paper.width, overflow="ellipsis")
    paper.line(head, hang=2)


def _finding(paper: Paper, finding: Finding) -> None:
    _head(paper, finding)
    paper.line(Text(one_line(finding.message)), indent=2)
    if finding.saving:
        amount, words = savings.amount(finding.saving), savings.sentence(finding.saving)
        paper.line(Text.assemble("worth ", (amount, "bold"), f", {words}"), indent=2)
    if finding.remedy:
        _remedy(paper, finding.remedy)


def _explained(paper: Paper, finding: Finding) -> None:
    head = Text.assemble(("also ", "dim"), (finding.severity, _STYLE[finding.severity]), f" {one_line(finding.rule)} ")
    if finding.where:
        head.append(place(finding.where), "cyan").append("  ")
    head.append(one_line(finding.title))
    if finding.because:
        head.append(f" ({one_line(finding.because)})", "dim")
    paper.line(head, indent=2, hang=5)


def _remedy(paper: Paper, remedy: Remedy) -> None:
    changes = diff.changes(remedy.diff) if remedy.diff else []
    if not changes:
        paper.line(Text.assemble(("fix  ", "dim"), first_paragraph(remedy.text)), indent=2, hang=5)
        return
    for index, change in enumerate(changes[:_DIFF_LINES]):
        style = "green" if change.startswith("+") else "red"
        paper.line(Text.assemble(("     " if index else "fix  ", "dim"), (change, style)), indent=2, hang=7)
    if len(changes) > _DIFF_LINES:
        paper.line(Text(f"… {plural(len(changes) - _DIFF_LINES, 'more line')} in the report"), indent=7)


def _ids(group: wording.Unjudged) -> str:
    """The rules of a group; of a long list the first, as the reason is what counts."""
    names = [one_line(rule.rule) for rule in group.rules]
    if len(names) <= _IDS + 1:
        return " ".join(names)
    return f"{' '.join(names[:_IDS])} … and {len(names) - _IDS} more rules"


def _rest(paper: Paper, diagnosis: Diagnosis) -> None:
    live = diagnosis.live
    counts = (
        wording.count_by_severity(live) or "no findings",
        f"{format_count(len(diagnosis.findings) - len(live))} accepted",
        f"{format_count(len(diagnosis.passed))} passed",
        f"{format_count(len(diagnosis.not_measured))} {wording.NOT_MEASURED}",
    )
    paper.line(Text(" · ".join(counts), "bold"), hang=2)
    if fixable := wording.fixable(diagnosis):
        paper.line(Text(fixable), hang=2)
    for finding in diagnosis.findings:
        if finding.accepted is not None:
            words = f"{one_line(finding.rule)} {place(finding.where)}: {one_line(finding.accepted)}"
            paper.line(Text.assemble(("accepted  ", "dim"), words), hang=10)
    for group in wording.unjudged(diagnosis):
        everything = not wording.judged_rules(diagnosis) and 1 < len(group.rules) == len(diagnosis.not_measured)
        rules = "every rule" if everything else _ids(group)
        label = f"{wording.NOT_MEASURED}  "
        why = "; ".join(filter(None, (group.reason, group.how)))
        paper.line(Text.assemble((label, "dim"), f"{rules}: {why}"), hang=len(label))


def first_paragraph(markdown: str) -> str:
    """A remedy's first paragraph as one line of text; code blocks are left to the reports that can show them."""
    return one_line(markdown.strip().split("\n\n", 1)[0])
