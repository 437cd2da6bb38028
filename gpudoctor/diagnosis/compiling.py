"""What torch.compile did, or would do."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis.finding import Location


@dataclass(frozen=True, slots=True)
class Break:
    """A graph break on one line of a compiled function.

    Attributes:
        where: the user's line; null when it cannot be tied to one.
        reason: Dynamo's reason, one line.
        break_id: id in Dynamo's registry of breaks, e.g. GB0124.
        count: how often it was logged.
        skipped: all of the function runs eagerly because of it.
    """

    where: Location | None
    reason: str | None
    break_id: str | None = None
    count: int = 1
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class CompiledFrame:
    """A function, or what follows a graph break in it, as Dynamo compiled it.

    Attributes:
        function: the function's name.
        where: its first line; for a continuation the line at which it goes on.
        resumes: it goes on after a graph break.
        versions: compilations of it that gave code.
        graphs: how many of them hold a graph.
        operators: operators in the graph of the last version; null without a graph.
        guards: guards of the last version.
        kernels: kernels that Inductor made of that graph, forward and backward; null with another backend.
        library_calls: library kernels and fallbacks that it calls beside them; null likewise.
        compile_ns: time spent compiling it, its backward graphs included.
        limit: it reached the recompile limit.
        breaks: graph breaks in it, in order of lines.
    """

    function: str
    where: Location | None
    resumes: bool = False
    versions: int = 0
    graphs: int = 0
    operators: int | None = None
    guards: int | None = None
    kernels: int | None = None
    library_calls: int | None = None
    compile_ns: int = 0
    limit: bool = False
    breaks: tuple[Break, ...] = ()


@dataclass(frozen=True, slots=True)
class Compilation:
    """What torch.compile did over the whole run.

    Attributes:
        graphs: graphs compiled, each version of each frame.
        graph_breaks: breaks logged.
        recompiles: recompilations, without those refused at the recompile limit.
        compile_ns: time spent compiling.
        dynamo_ns: of which tracing (Dynamo).
        backend_ns: of which in the backend (AOTAutograd, Inductor).
        backward_ns: of which backward graphs that were compiled later.
        steady_ns: compile time after warm-up; null when no step was seen.
        cache_hits: look-ups that found Inductor's or AOTAutograd's work in a cache; null when none was logged.
        cache_misses: look-ups that did not; null likewise.
        frames: what was compiled, each function followed by its continuations.
    """

    graphs: int
    graph_breaks: int
    recompiles: int
    compile_ns: int
    dynamo_ns: int
    backend_ns: int
    backward_ns: int
    steady_ns: int | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None
    frames: tuple[CompiledFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What torch.compile would make of the model of a script that compiles nothing: traced once, after the run.

    Attributes:
        module: class of the module that was traced.
        where: the line that calls it.
        graphs: graphs its forward would become.
        operators: operators in them.
        guards: guards on the code.
        seconds: how long the tracing took.
        breaks: graph breaks in it.
        eager_kernels: operators that compute; null unless Inductor was asked for (`--what-if=inductor`).
        kernels: kernels that Inductor makes of them; null likewise.
        library_calls: library kernels that stay; null likewise.
    """

    module: str
    where: Location | None
    graphs: int
    operators: int
    guards: int | None = None
    seconds: float | None = None
    breaks: tuple[Break, ...] = ()
    eager_kernels: int | None = None
    kernels: int | None = None
    library_calls: int | None = None
