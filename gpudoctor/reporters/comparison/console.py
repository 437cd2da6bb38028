"""A comparison in the terminal: the verdict, what got worse on which line, the counters, then findings and time."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from gpudoctor.compare import Comparison
from gpudoctor.reporters.comparison import words
from gpudoctor.reporters.console import WIDTH
from gpudoctor.reporters.terminal import Paper, encodable
from gpudoctor.reporters.wording import one_line, place

_STYLE = {"worse": "bold red", "better": "bold green", "inconclusive": "bold yellow", "same": "bold"}
_MOST = 30
"""Lines of one kind; JSON and the page have all."""


def render(comparison: Comparison, width: int = WIDTH, color: bool = False) -> str:
    """The comparison as text of a width."""
    paper = Paper(min(width, WIDTH), color)
    paper.line(Text.assemble(("gpudoctor compare", "bold"), "  ", words.sides(comparison)), hang=2)
    paper.gap()
    paper.line(Text(comparison.sentence, _STYLE[comparison.verdict]), hang=2)
    for reason in comparison.inconclusive[1:]:
        paper.line(Text(one_line(reason)), indent=2, hang=2)
    _regressions(paper, comparison)
    _counters(paper, comparison)
    _findings(paper, comparison)
    paper.gap()
    paper.line(Text(words.time(comparison)), hang=2)
    for caveat in comparison.caveats:
        paper.line(Text(f"note: {one_line(caveat)}"), hang=6)
    return paper.text


def print_report(comparison: Comparison, file: TextIO) -> None:
    """Writes the comparison to a stream, as wide as its terminal, in colour where it has one."""
    terminal = file.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((WIDTH, 24)).columns if terminal else WIDTH
    file.write(encodable(render(comparison, width, color), file.encoding or "utf-8"))


def concise(comparison: Comparison) -> str:
    """One line a regression: place, counters."""
    return "".join(
        f"{place(one.where) if one.where else '-'}: {one_line(one.message)}\n" for one in comparison.regressions
    )


def _regressions(paper: Paper, comparison: Comparison) -> None:
    for one in comparison.regressions[:_MOST]:
        paper.gap()
        where = place(one.where) if one.where else "no line is known"
        paper.line(Text.assemble(("worse  ", "bold red"), (where, "bold")), hang=7)
        if one.text:
            paper.line(Text(one_line(one.text), "cyan"), indent=7)
        paper.line(Text(one_line(one.message)), indent=7)
        if one.also:
            seen = ", ".join(dict.fromkeys(place(at) for at in one.also))
            paper.line(Text(f"counted at {seen}", "dim"), indent=7)
    left = len(comparison.regressions) - _MOST
    if left > 0:
        paper.line(Text(f"and {left} more"), indent=7)


def _counters(paper: Paper, comparison: Comparison) -> None:
    rows = words.rows(comparison, differing=True)
    paper.gap()
    if rows:
        title = min(max(cell_len(row.title) for row in rows), 34)
        cells = [(row.base, row.head, row.delta) for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        paper.line(Text("Counters that differ", "bold"))
        for row, amounts in zip(rows, cells, strict=True):
            shown = "  ".join(f"{text:>{width}}" for text, width in zip(amounts, widths, strict=True))
            paper.line(Text(f"  {row.title:<{title}}  {shown}  {row.verdict}"), hang=title + 4)
        for verdict, reason in dict.fromkeys((row.verdict, row.reason) for row in rows if row.reason):
            paper.line(Text(f"{verdict}: {reason}", "dim"), indent=2, hang=2)
    paper.line(Text(words.same(comparison), "dim"))


def _findings(paper: Paper, comparison: Comparison) -> None:
    if not comparison.findings:
        return
    paper.gap()
    paper.line(Text("Findings that changed", "bold"))
    for change in comparison.findings[:_MOST]:
        paper.line(Text(f"  {words.STATUS[change.status]:<11} {words.finding(change)}"), hang=14)
    if (left := len(comparison.findings) - _MOST) > 0:
        paper.line(Text(f"  and {left} more"))
