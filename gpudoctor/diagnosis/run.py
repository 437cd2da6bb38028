"""The run itself: its script, machine, times and end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Run:
    """What was run and how it was watched.

    Attributes:
        script: script or module, as given.
        argv: its arguments.
        torch: torch version.
        device: device the step used, e.g. "CPU" or a GPU's name.
        started: ISO 8601 time with offset.
        steps: steps seen.
        step_source: what ended a step (optimizer, …).
        step_ns: median time of an unprofiled steady step; null when there was none.
        step_spread_ns: median absolute deviation of those; null below 3 steps.
        step_count: steady unprofiled steps behind step_ns.
        profiled_step_ns: median time of a lightly profiled step.
        source: a run that gpudoctor recorded, a trace that somebody else did, or what has no steps: a compile log, an
            allocator snapshot.
        predicted_step_ns: what the profiled steps predict without the profiler, its cost per event taken off.
        batch: size or shape of a step's batch, e.g. "32 samples"; null when not known.
        stopped: why the observation ended, one phrase.
        script_exit: the script's own exit code; null when gpudoctor stopped it.
        integrity: what limits the verdicts, a sentence each.
        environment: versions and machine facts by name.
    """

    script: str
    argv: tuple[str, ...] = ()
    torch: str | None = None
    device: str | None = None
    started: str | None = None
    steps: int = 0
    step_source: str | None = None
    step_ns: int | None = None
    step_spread_ns: int | None = None
    step_count: int = 0
    profiled_step_ns: int | None = None
    predicted_step_ns: int | None = None
    batch: str | None = None
    source: Literal["run", "trace", "log", "snapshot"] = "run"
    stopped: str | None = None
    script_exit: int | None = None
    integrity: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def stepless(self) -> bool:
        """Whether what was read has no steps by its nature."""
        return self.source in ("log", "snapshot")


def run_failed(run: Run) -> str | None:
    """How the script failed, e.g. `failed with exit code 1`; None when it did not, or was stopped."""
    if not run.script_exit:
        return None
    code = run.script_exit
    return f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
