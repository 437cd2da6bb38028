"""Several ranks in the terminal: a line each, under the diagnosis of the one that is shown in full."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TextIO

from rich.text import Text

from gpudoctor.ranks import RankDiagnosis, Ranks
from gpudoctor.reporters import concise
from gpudoctor.reporters.console import WIDTH
from gpudoctor.reporters.terminal import Paper, encodable
from gpudoctor.reporters.wording import one_line, place, saving_amount
from gpudoctor.units import format_ns, plural


def render_table(ranks: Ranks, width: int = WIDTH, color: bool = False) -> str:
    """Rank, step time and the first finding of each; `*` marks the one that was shown."""
    paper = Paper(min(width, WIDTH), color)
    paper.line(Text(f"{plural(len(ranks.ranks), 'rank')}, * the slowest is shown above", "bold"))
    paper.line(Text("  rank  step time  first finding", "dim"))
    alone = len({rank.rank for rank in ranks.ranks}) == len(ranks.ranks)
    for number, rank in enumerate(ranks.ranks):
        mark = "*" if number == ranks.slowest else " "
        time = "unknown" if rank.step_ns is None else format_ns(rank.step_ns)
        row = Text(
            f"{mark} {rank.rank:>4}  {time:>9}  {_first(rank)}{'' if alone else f' ({one_line(Path(rank.path).name)})'}"
        )
        paper.line(row, hang=19)
    return paper.text


def print_table(ranks: Ranks, file: TextIO) -> None:
    """Writes the table to a stream, as wide as its terminal."""
    terminal = file.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((WIDTH, 24)).columns if terminal else WIDTH
    file.write(encodable(render_table(ranks, width, color), file.encoding or "utf-8"))


def render_concise(ranks: Ranks) -> str:
    """One line a finding, the rank in front."""
    return "".join(
        f"rank {rank.rank}: {line}\n" for rank in ranks.ranks for line in concise.render(rank.diagnosis).splitlines()
    )


def _first(rank: RankDiagnosis) -> str:
    if not rank.diagnosis.live:
        return "no findings"
    finding = rank.diagnosis.live[0]
    where = f" {place(finding.where)}" if finding.where else ""
    saving = f", {saving_amount(finding.saving)}" if finding.saving else ""
    return f"{one_line(finding.rule)}{where} {one_line(finding.title)}{saving}"
