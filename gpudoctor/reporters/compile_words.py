"""The words on what torch.compile did, for every format."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.diagnosis import Compilation, CompiledFrame, Location
from gpudoctor.reporters.wording import place
from gpudoctor.units import format_ns, plural


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


def alike(frames: Sequence[CompiledFrame]) -> list[list[CompiledFrame]]:
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


def made(kernels: int | None, library_calls: int | None) -> str:
    """` → 3 kernels + 2 library calls`; nothing where that is not known."""
    if kernels is None:
        return ""
    calls = f" + {plural(library_calls, 'library call')}" if library_calls else ""
    return f" → {plural(kernels, 'kernel')}{calls}"


def short_place(where: Location | None) -> str:
    """The place; a library's file without the folder it is installed in."""
    return place(where).rpartition("site-packages/")[2]


def facts(frame: CompiledFrame, compile_ns: int) -> list[str]:
    """Versions, operators, guards and time of a frame, in words."""
    words = []
    if frame.versions > 1:
        words.append(f"{plural(frame.versions, 'version')}, the last with")
    if frame.operators:
        words.append(plural(frame.operators, "operator") + made(frame.kernels, frame.library_calls))
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
