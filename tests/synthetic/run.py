"""Runs a program on the machine: profiled step by step as a bare trace, or watched as gpudoctor's recorder does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.synthetic import kineto, recorder_files
from tests.synthetic.device import Activity
from tests.synthetic.hardware import A100, Gpu
from tests.synthetic.loop import Step, Torch
from tests.synthetic.machine import Call, Machine

WARM_UP = 2
"""Steps before a bare trace begins."""

WATCHED = (
    ("bare",) * 3 + ("detail",) * 2 + ("bare",) * 2 + ("light",) * 3 + ("bare",) * 6 + ("light",) * 3 + ("bare",) * 3
)
"""How gpudoctor's recorder looks at the steps of a run."""


@dataclass(slots=True, eq=False)
class Run:
    """A program that ran.

    Attributes:
        torch: what it ran on, with everything that really happened.
        path: the trace or the recording.
    """

    torch: Torch
    path: Path | None = None
    gpu: Gpu = A100

    @property
    def steps(self) -> list[Step]:
        return self.torch.steps

    @property
    def calls(self) -> list[Call]:
        return self.torch.machine.calls

    @property
    def activities(self) -> list[Activity]:
        return self.torch.machine.device.activities

    def step_ns(self, label: str = "bare") -> int:
        """Median step, the first ones left out."""
        return int(median(s.end_ns - s.start_ns for s in self.steps[WARM_UP:] if s.label == label))


Program = Callable[[Torch], None]


def run_program(program: Program, torch: Torch) -> None:
    """Runs it; the functions above this one are the program's."""
    program(torch)


def _torch(gpu: Gpu, seed: int, schedule: Sequence[str], marks: bool, stacks: bool, by_batch: bool) -> Torch:
    return Torch(Machine(gpu, seed), schedule, marks, stacks, by_batch)


def bare(program: Program, *, steps: int = 12, seed: int = 0, gpu: Gpu = A100) -> Run:
    """Runs it without any profiler: how long it really takes."""
    torch = _torch(gpu, seed, ("bare",) * steps, False, False, True)
    run_program(program, torch)
    return Run(torch, gpu=gpu)


def trace(
    program: Program,
    path: Path,
    *,
    steps: int = 3,
    seed: int = 0,
    gpu: Gpu = A100,
    stacks: bool = True,
    light: bool = False,
    whole_us: bool = False,
    distributed: dict[str, Any] | None = None,
) -> Run:
    """Runs it under torch.profiler and writes the trace.

    Args:
        program: the program.
        path: where the trace goes.
        steps: how many steps it has.
        seed: of all that varies.
        gpu: the device.
        stacks: record Python functions.
        light: the profiler costs as little as it can (then without stacks).
        whole_us: whole microseconds.
        distributed: `distributedInfo`.
    """
    label = "light" if light else "detail"
    torch = _torch(gpu, seed, ("bare",) * WARM_UP + (label,) * steps, False, stacks and not light, True)
    run_program(program, torch)
    torch.stop()
    made = kineto.document(
        torch.bursts[0].events, gpu, whole_us=whole_us, stacks=stacks and not light, distributed=distributed
    )
    return Run(torch, kineto.write(path, made), gpu)


def recording(program: Program, folder: Path, *, seed: int = 0, gpu: Gpu = A100) -> Run:
    """Runs it as `gpudoctor check` would have recorded it: unprofiled, light and detailed steps."""
    torch = _torch(gpu, seed, WATCHED, True, True, False)
    run_program(program, torch)
    torch.stop()
    recorder_files.write(torch, folder, gpu)
    return Run(torch, folder, gpu)
