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
class GeneratedKernel:
    """A kernel that Inductor made, beside the lines it was made of.

    Attributes:
        name: its name in the generated code.
        kind: cpp, triton or what else Inductor calls it.
        direction: forward or backward.
        ops: operators that it fuses.
        lines: the user's lines, as `file:line`.
        bytes: what it loads and stores; null where sizes are not known.
        ns_per_call: time of a call; null where it was not measured.
    """

    name: str
    kind: str | None
    direction: str | None
    ops: str | None
    lines: tuple[str, ...] = ()
    bytes: int | None = None
    ns_per_call: int | None = None


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
