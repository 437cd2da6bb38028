"""The terminal report's part on torch.compile: totals, and each function with its graphs and breaks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gpudoctor.diagnosis import Break, Compilation, CompiledFrame, WhatIf
from gpudoctor.reporters import compile_words
from gpudoctor.reporters.compile_words import made, short_place
from gpudoctor.reporters.terminal import Paper
from gpudoctor.reporters.wording import NOT_MEASURED, one_line
from gpudoctor.units import format_count, plural

_MOST = 12
"""Lines for frames and breaks; a large model can have hundreds."""


def write(paper: Paper, compiled: Compilation | None, what_if: WhatIf | None = None) -> None:
    """Writes the section; nothing when nothing was compiled, nor tried to."""
    if compiled is None:
        if what_if is not None:
            _what_if(paper, what_if)
        return
    paper.gap()
    paper.line(Text.assemble(("Compilation", "bold"), (f"  {compile_words.totals(compiled)}", "dim")), hang=2)
    lines = [line for frames in compile_words.alike(compiled.frames) for line in _frame(frames)]
    for line, hang in lines[:_MOST]:
        paper.line(line, indent=2, hang=hang)
    if len(lines) > _MOST:
        paper.line(Text(f"… and {plural(len(lines) - _MOST, 'more line')}; `--output-format json` has all"), indent=2)


def _what_if(paper: Paper, what_if: WhatIf) -> None:
    paper.gap()
    said = "  nothing compiled; what torch.compile would make of the model"
    paper.line(Text.assemble(("Compilation", "bold"), (said, "dim")), hang=2)
    words = [plural(what_if.graphs, "graph"), plural(what_if.operators, "operator")]
    if what_if.guards is not None:
        words.append(plural(what_if.guards, "guard"))
    if what_if.eager_kernels is not None:
        words.append(f"{plural(what_if.eager_kernels, 'eager kernel')}{made(what_if.kernels, what_if.library_calls)}")
    else:
        words.append(f"kernels {NOT_MEASURED} (--what-if=inductor)")
    head = Text.assemble((one_line(what_if.module), "bold"), "  ", (short_place(what_if.where), "cyan"), "  ")
    paper.line(head.append(" · ".join(words), "dim"), indent=2, hang=4)
    for line, hang in [_break(broke) for broke in what_if.breaks][:_MOST]:
        paper.line(line, indent=2, hang=hang)


def _frame(frames: Sequence[CompiledFrame]) -> list[tuple[Text, int]]:
    frame = frames[-1]
    name = "  goes on" if frame.resumes else one_line(frame.function)
    if len(frames) > 1:
        name += f" ×{len(frames)}"
    head = Text.assemble((name, "" if frame.resumes else "bold"), "  ", (short_place(frame.where), "cyan"), "  ")
    head.append(
        " · ".join(compile_words.facts(frame, sum(one.compile_ns for one in frames))).replace("with · ", "with "), "dim"
    )
    return [(head, 4), *map(_break, frames[0].breaks)]


def _break(broke: Break) -> tuple[Text, int]:
    reason = one_line(broke.reason or "no reason given")
    text = Text.assemble("  break  ", (short_place(broke.where), "cyan"), f"  {reason}")
    if broke.break_id:
        text.append(f" ({broke.break_id})", "dim")
    if broke.count > 1:
        text.append(f", {format_count(broke.count)} times", "dim")
    return text, 4
