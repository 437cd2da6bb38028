"""The terminal report's part on torch.compile: totals, and each function with its graphs and breaks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gpudoctor.diagnosis import Break, Compilation, CompiledFrame, Location, WhatIf
from gpudoctor.reporters.terminal import Paper
from gpudoctor.reporters.wording import NOT_MEASURED, one_line, place
from gpudoctor.units import format_count, format_ns, plural

_MOST = 12
"""Lines for frames and breaks; a large model can have hundreds."""


def write(paper: Paper, compiled: Compilation | None, what_if: WhatIf | None = None) -> None:
    """Writes the section; nothing when nothing was compiled, nor tried to."""
    if compiled is None:
        if what_if is not None:
            _what_if(paper, what_if)
        return
    paper.gap()
    paper.line(Text.assemble(("Compilation", "bold"), (f"  {totals(compiled)}", "dim")), hang=2)
    lines = [line for frames in _alike(compiled.frames) for line in _frame(frames)]
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
        words.append(f"{plural(what_if.eager_kernels, 'eager kernel')}{_made(what_if.kernels, what_if.library_calls)}")
    else:
        words.append(f"kernels {NOT_MEASURED} (--what-if=inductor)")
    head = Text.assemble((one_line(what_if.module), "bold"), "  ", (_place(what_if.where), "cyan"), "  ")
    paper.line(head.append(" · ".join(words), "dim"), indent=2, hang=4)
    for line, hang in [_break(broke) for broke in what_if.breaks][:_MOST]:
        paper.line(line, indent=2, hang=hang)


def totals(compiled: Compilation) -> str:
    """`3 graphs · 1 break · 2 recompiles · 1.20 s compiling`, with what compiled after warm-up."""
    words = [
        plural(compiled.graphs, "graph"),
        plural(compiled.graph_breaks, "break"),
        plural(compiled.recompiles, "recompile"),
        f"{format_ns(compiled.compile_ns)} compiling",
    ]
    if compiled.backend_ns or compiled.backward_ns:
        words[-1] += f" ({format_ns(compiled.backend_ns + compiled.backward_ns)} of it in the backend)"
    if compiled.steady_ns:
        words.append(f"{format_ns(compiled.steady_ns)} of it after warm-up")
    if compiled.cache_hits is not None and compiled.cache_misses is not None:
        words.append(f"cache {plural(compiled.cache_hits, 'hit')}, {plural(compiled.cache_misses, 'miss', 'misses')}")
    return " · ".join(words)


def _alike(frames: Sequence[CompiledFrame]) -> list[list[CompiledFrame]]:
    """Frames of the same code behind each other: code that is made anew, a module that was wrapped twice."""
    groups: list[list[CompiledFrame]] = []
    for frame in frames:
        last = groups[-1][-1] if groups else None
        same = last is not None and _identity(last) == _identity(frame)
        if same and not (frame.breaks or frame.limit):
            groups[-1].append(frame)
        else:
            groups.append([frame])
    return groups


def _identity(frame: CompiledFrame) -> tuple[object, ...]:
    return frame.function, frame.where, frame.resumes


def _frame(frames: Sequence[CompiledFrame]) -> list[tuple[Text, int]]:
    frame = frames[-1]
    name = "  goes on" if frame.resumes else one_line(frame.function)
    if len(frames) > 1:
        name += f" ×{len(frames)}"
    head = Text.assemble((name, "" if frame.resumes else "bold"), "  ", (_place(frame.where), "cyan"), "  ")
    head.append(" · ".join(_facts(frame, sum(one.compile_ns for one in frames))).replace("with · ", "with "), "dim")
    return [(head, 4), *map(_break, frames[0].breaks)]


def _break(broke: Break) -> tuple[Text, int]:
    reason = one_line(broke.reason or "no reason given")
    text = Text.assemble("  break  ", (_place(broke.where), "cyan"), f"  {reason}")
    if broke.break_id:
        text.append(f" ({broke.break_id})", "dim")
    if broke.count > 1:
        text.append(f", {format_count(broke.count)} times", "dim")
    return text, 4


def _made(kernels: int | None, library_calls: int | None) -> str:
    """` → 3 kernels + 2 library calls`; nothing where that is not known."""
    if kernels is None:
        return ""
    calls = f" + {plural(library_calls, 'library call')}" if library_calls else ""
    return f" → {plural(kernels, 'kernel')}{calls}"


def _place(where: Location | None) -> str:
    """The place; a library's file without the folder it is installed in."""
    return place(where).rpartition("site-packages/")[2]


def _facts(frame: CompiledFrame, compile_ns: int) -> list[str]:
    words = []
    if frame.versions > 1:
        words.append(f"{plural(frame.versions, 'version')}, the last with")
    if frame.operators:
        words.append(plural(frame.operators, "operator") + _made(frame.kernels, frame.library_calls))
    elif any(broke.skipped for broke in frame.breaks):
        words.append("runs eagerly")
    else:
        words.append("no operators")
    if frame.guards is not None:
        words.append(plural(frame.guards, "guard"))
    if compile_ns:
        words.append(format_ns(compile_ns))
    if frame.limit:
        words.append("recompile limit reached")
    return words
