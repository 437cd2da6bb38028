"""What takes most of the steps, and the median one as it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpudoctor.diagnosis.finding import Location


@dataclass(frozen=True, slots=True)
class Work:
    """What takes most of the profiled steps: kernels of one name, or on a CPU operators of one name.

    Attributes:
        name: kernel or operator.
        kind: its class: gemm, convolution, pointwise, copy, …
        per_step: calls a step.
        ns_per_step: its time a step under the profiler; of operators without what they call.
        share: the same as a share of all such time.
        where: the user's line that has most of it; null when none is known.
    """

    name: str
    kind: str | None
    per_step: float
    ns_per_step: int
    share: float
    where: Location | None = None


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line of the user's code that a generated kernel computes.

    Attributes:
        file: path relative to the run's working folder when inside it, else absolute.
        line: 1-based line.
        text: the line without its indentation; empty where the source is not known or was left out.
    """

    file: str
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A kernel that Inductor made, beside the lines it was made of.

    Attributes:
        name: its name in the generated code.
        kind: cpp, triton or what else Inductor calls it.
        direction: forward or backward.
        ops: operators that it fuses.
        lines: the user's lines.
        bytes: what it loads and stores; null where sizes are not known.
        ns_per_step: time of its calls in a step; null where it was not measured.
        code: the first lines of its source, from its signature on; null where that is not known or was left out.
        code_lines: how many lines that has in all; 0 where it is not known.
    """

    name: str
    kind: str | None
    direction: str | None
    ops: str | None
    lines: tuple[KernelLine, ...] = ()
    bytes: int | None = None
    ns_per_step: int | None = None
    code: str | None = None
    code_lines: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One band of the timeline.

    Attributes:
        name: thread, stream, or what its stretches are.
        kind: phases, thread, stream or idle.
        rows: how deep its events are nested.
    """

    name: str
    kind: Literal["phases", "thread", "stream", "idle"]
    rows: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The median profiled step as it ran, packed for the report's page.

    Attributes:
        step: number of the step.
        step_ns: its time under the profiler.
        unit_ns: nanoseconds that one unit of the columns is.
        lanes: bands, from top to bottom.
        names: names of events.
        kinds: what events are (phase, class, owner of idle time).
        places: the user's lines as `file:line`.
        events: how many there are.
        left_out: short events that were left out of a step with too many.
        columns: base64 of the deflated columns, little-endian, one behind the other: start and length (32 bits, in
            units), name and place (32 bits, place 0 is none and 1 the first), lane, row and kind (8 bits each). Events
            are sorted by lane, row and start.
        memory: memory in use, as (units from the step's begin, bytes).
    """

    step: int
    step_ns: int
    unit_ns: int
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    places: tuple[str, ...]
    events: int
    columns: str
    left_out: int = 0
    memory: tuple[tuple[int, int], ...] = ()
