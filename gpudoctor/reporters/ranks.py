"""Several ranks in the terminal: a line each, under the diagnosis of the one that is shown in full."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TextIO

from rich.text import Text

from gpudoctor.ranks import RankDiagnosis, Ranks
from gpudoctor.reporters import concise, savings
from gpudoctor.reporters.console import WIDTH
from gpudoctor.reporters.terminal import Paper, encodable
from gpudoctor.reporters.wording import one_line, place
from gpudoctor.units import format_count, format_ns, plural

_COMPILED = "graphs  breaks  recompiles"


def _compiled(rank: RankDiagnosis) -> str:
    """What a compile log counts, under `_COMPILED`."""
    names = ("graphs", "graph_breaks", "recompiles")
    counts = [rank.diagnosis.counters.get(name) for name in names]
    cells = zip(counts, _COMPILED.split(), strict=True)
    return "  ".join(f"{'-' if count is None else format_count(count):>{len(title)}}" for count, title in cells)


def render_table(ranks: Ranks, width: int = WIDTH, color: bool = False) -> str:
    """Rank, step time and the first finding of each; `*` marks the one that was shown."""
    paper = Paper(min(width, WIDTH), color)
    logs = all(rank.diagnosis.run.source == "log" for rank in ranks.ranks)
    shown = "* is" if logs else "* the slowest is"
    paper.line(Text(f"{plural(len(ranks.ranks), 'rank')}, {shown} shown above", "bold"))
    paper.line(Text(f"  rank  {_COMPILED if logs else 'step time'}  first finding", "dim"))
    alone = len({rank.rank for rank in ranks.ranks}) == len(ranks.ranks)
    for number, rank in enumerate(ranks.ranks):
        mark = "*" if number == ranks.slowest else " "
        time = f"{'unknown' if rank.step_ns is None else format_ns(rank.step_ns):>9}"
        name = "" if alone else f" ({one_line(Path(rank.path).name)})"
        row = Text(f"{mark} {rank.rank:>4}  {_compiled(rank) if logs else time}  {_first(rank)}{name}")
        paper.line(row, hang=36 if logs else 19)
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
    finding = rank.diagnosis.roots[0]
    where = f" {place(finding.where)}" if finding.where else ""
    saving = f", {savings.amount(finding.saving)}" if finding.saving else ""
    return f"{one_line(finding.rule)}{where} {one_line(finding.title)}{saving}"
