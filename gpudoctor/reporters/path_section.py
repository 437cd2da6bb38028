"""The terminal report's part on the critical path, and on what all fixes save together."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpudoctor.diagnosis import Diagnosis
from gpudoctor.reporters import path_words
from gpudoctor.reporters.terminal import Paper

_NUMBERS = 21
"""Columns of a line that the time, the share and the gaps take."""


def write(paper: Paper, diagnosis: Diagnosis) -> None:
    """Writes the section; nothing when there is no critical path."""
    path = diagnosis.critical_path
    if path is None:
        return
    paper.gap()
    paper.line(Text.assemble((path_words.TITLE, "bold"), (f"  {path_words.source(path)}", "dim")), hang=2)
    owners = path_words.owners(path)
    column = min(max(cell_len(owner.name) for owner in owners), max(8, paper.width - _NUMBERS - 14))
    for owner in owners:
        row = Text(f"  {set_cell_size(owner.name, column)} {owner.time:>9} {owner.share:>7}")
        if owner.where:
            row.append(f"  {owner.where}", "cyan")
        paper.line(row, hang=column + _NUMBERS)
    _trust(paper, diagnosis)


def write_together(paper: Paper, diagnosis: Diagnosis) -> None:
    """Writes what the findings' fixes save together, below the findings; nothing below two that were replayed.

    Without a critical path it is also the place that says how well the steps were replayed.
    """
    together = path_words.together(diagnosis)
    if together is not None:
        paper.line(Text.assemble(f"{together.label} ", (together.amount, "bold"), f", {together.words}"), hang=2)
    said = diagnosis.critical_path is None and _trust(paper, diagnosis, 2 if together else 0)
    if together is not None or said:
        paper.gap()


def _trust(paper: Paper, diagnosis: Diagnosis, indent: int = 2) -> bool:
    words = path_words.trust(diagnosis)
    if words:
        paper.line(Text(words, "dim"), indent=indent)
    return bool(words)
