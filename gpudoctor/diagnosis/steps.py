"""What the time of a step is made of: budget, replay, critical path, and the times of all steps."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis.finding import Location, Saving


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """One owner's time in the budget step."""

    owner: str
    ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Budget:
    """Where one step's time goes. The shares add up to `step_ns` exactly.

    Attributes:
        step: number of the step (the median of those that have a budget).
        step_ns: its time under the profiler.
        ruler: what was measured: "main thread" or "device".
        shares: owners, largest first.
        observation: how the step was profiled, "light" or "detail"; None when another recorded it.
    """

    step: int
    step_ns: int
    ruler: str
    shares: tuple[BudgetShare, ...]
    observation: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """How well the dependency graph of the profiled steps gives their times back, and what all fixes save together.

    Attributes:
        steps: steps replayed.
        error: median over the steps of |replayed / measured - 1|, with the trace's constants.
        worst_error: largest of them.
        opaque_share: share of the critical path that is waiting which nothing explains.
        refused: why no saving was simulated, a sentence; null when savings were.
        together: what all findings' fixes save when they are replayed at once; null when none was simulated.
    """

    steps: int
    error: float
    worst_error: float
    opaque_share: float
    refused: str | None = None
    together: Saving | None = None


@dataclass(frozen=True, slots=True)
class PathShare:
    """What one owner has of the critical path.

    Attributes:
        kind: host, call, device, latency or wait, as in the table `critical_path`.
        name: operator, runtime call or kernel class; null for Python between operators.
        where: the user's line; null when unknown.
        stream: stream id, for device work and launch latency.
        ns: its time on the path.
        share: the same as a share of the step.
    """

    kind: str
    name: str | None
    where: Location | None
    stream: int | None
    ns: int
    share: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What the time of the median profiled step hangs on.

    Attributes:
        step: number of the step.
        step_ns: its time under the profiler.
        shares: owners, largest first; they add up to the step.
    """

    step: int
    step_ns: int
    shares: tuple[PathShare, ...]


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step's time for the step chart."""

    step: int
    ns: int
    observation: str
    warmup: bool
    compile_ns: int
