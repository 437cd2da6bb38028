"""The terminal report's part on memory: who held it at the peak, what keeps segments, what other settings would do."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpudoctor.diagnosis import Memory
from gpudoctor.reporters import memory_words
from gpudoctor.reporters.memory_words import Row
from gpudoctor.reporters.terminal import Paper

_NUMBERS = 22
"""Columns of a line that the amount, the share and the gaps take."""


def write(paper: Paper, memory: Memory | None) -> None:
    """Writes the section; nothing without an allocator snapshot."""
    if memory is None or not memory.devices:
        return
    paper.gap()
    paper.line(Text(memory_words.TITLE, "bold"))
    peak = memory_words.peak_title(memory)
    for device in memory.devices:
        paper.line(Text(memory_words.device_words(device, len(memory.devices) > 1)), indent=2, hang=2)
        if said := memory_words.advice(memory, device):
            paper.line(Text(said), indent=2)
        _rows(paper, f"{peak}, by category", memory_words.by_category(memory, device.device))
        _rows(
            paper,
            f"{peak}, by line (→ the peak without it)",
            memory_words.peak_rows(memory, device.device),
        )
        _rows(paper, "Free but kept, by the line that keeps it", memory_words.kept_rows(memory, device.device))
        _rows(
            paper,
            "Reserved at most, under other allocator settings (model, estimated)",
            memory_words.replay_rows(memory.replays, device),
        )

        if note := memory_words.replay_note(memory.replays, device):
            paper.line(Text(note, "dim"), indent=2)


def _rows(paper: Paper, title: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    paper.line(Text(title, "dim"), indent=2)
    column = min(max(cell_len(row.name) for row in rows), max(8, paper.width - _NUMBERS - 24))
    for row in rows:
        line = Text(f"  {row.amount:>9} {row.share:>7}  {set_cell_size(row.name, column)}")
        if row.where:
            line.append(f"  {row.where}", "cyan")
        if row.note:
            line.append(f"  {row.note}", "dim")
        paper.line(line, indent=2, hang=_NUMBERS)
