"""What the page shows of torch.compile: each function as a chain of graphs and the breaks between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.diagnosis import Break, CompiledFrame, Diagnosis
from gpudoctor.reporters import compile_words, kernel_view
from gpudoctor.reporters.kernel_view import KernelView
from gpudoctor.reporters.wording import one_line
from gpudoctor.units import format_count

MOST = 60
"""Links of all chains that are drawn."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a chain: a graph, or the break behind it."""

    kind: str
    title: str
    where: str
    words: str


@dataclass(frozen=True, slots=True)
class CompileView:
    """The section: totals, one chain a function, and the kernels that Inductor made."""

    totals: str
    chains: tuple[tuple[Link, ...], ...]
    left_out: str
    kernels: tuple[KernelView, ...]
    kernels_note: str


def compile_view(diagnosis: Diagnosis) -> CompileView | None:
    """The section; None when nothing was compiled."""
    compiled = diagnosis.compilation
    if compiled is None:
        return None
    chains: list[list[Link]] = []
    for frames in compile_words.alike(compiled.frames):
        links = [_graph(frames), *map(_break, frames[0].breaks)]
        if frames[-1].resumes and chains:
            chains[-1] += links
        else:
            chains.append(links)
    shown: list[tuple[Link, ...]] = []
    count = 0
    for chain in chains:
        if count >= MOST:
            break
        shown.append(tuple(chain[: MOST - count]))
        count += len(shown[-1])
    left = sum(map(len, chains)) - count
    said = f"{format_count(left)} more are in the JSON" if left else ""
    kernels = tuple(kernel_view.kernel(one) for one in diagnosis.generated)
    note = kernel_view.note(diagnosis.generated_left_out)
    return CompileView(compile_words.totals(compiled), tuple(shown), said, kernels, note)


def _graph(frames: Sequence[CompiledFrame]) -> Link:
    frame = frames[-1]
    name = "goes on" if frame.resumes else one_line(frame.function)
    if len(frames) > 1:
        name += f" ×{len(frames)}"
    words = " · ".join(compile_words.facts(frame, sum(one.compile_ns for one in frames))).replace("with · ", "with ")
    kind = "graph" if frame.operators else "eager"
    return Link(kind, name, one_line(compile_words.short_place(frame.where)), words)


def _break(broke: Break) -> Link:
    words = [broke.break_id] if broke.break_id else []
    if broke.count > 1:
        words.append(f"{format_count(broke.count)} times")
    reason = one_line(broke.reason or "no reason given")
    return Link("break", reason, one_line(compile_words.short_place(broke.where)), " · ".join(words))
