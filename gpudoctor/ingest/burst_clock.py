"""The clock of a profiler burst's trace and that of its recording: what lies between them."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from gpudoctor.errors import InputError
from gpudoctor.ingest import kineto, ops, steps, trace_steps, watch
from gpudoctor.recording import part

_SKEW_NS = 20_000  # a step's mark in the watch is a few microseconds older than its range in the trace


def of_step(rank: Path, step: int) -> tuple[Path, int]:
    """The trace that a profiled step is in, and what to add to its times to get the recording's, in nanoseconds.

    Args:
        rank: folder of the recorded process.
        step: number of the step.

    Raises:
        InputError: no trace of the process has that step, or it cannot be read.
    """
    bursts, log = part(rank / "bursts.json", []), watch.read(rank / "watch.jsonl")
    rows, _ = steps.tables(log, bursts)
    for (number, mark), row in steps.profiled(rows, log).items():
        if row["step"] == step:
            file = rank / bursts[number]["file"]
            return file, windows(kineto.read(file), number, log, {mark: row})[1]
    raise InputError(f"{rank}: no profiler burst has step {step} in it; record the run again")


def windows(
    trace: kineto.Trace, burst: int, log: watch.WatchLog, taken: dict[int, dict[str, Any]]
) -> tuple[list[ops.Window], int]:
    """The profiled steps on the trace's clock, and what to add to get the recording's clock."""
    marks = {mark.number: mark.start_ns for mark in log.marks if mark.burst == burst}
    found, source = trace_steps.windows(trace)
    if source != trace_steps.PROFILER_STEP:
        return [], 0
    offsets = [marks[window.step] - window.start_ns for window in found if window.step in marks]
    offset = int(median(offsets)) if offsets else 0
    windows = []
    for window in found:
        if (row := taken.get(window.step)) is None:
            continue
        start = window.start_ns
        if row["validation_ns"]:  # a validation pass in front of the step is not part of it
            start = max(start, min(row["start_ns"] - offset - _SKEW_NS, window.end_ns))
        windows.append(ops.Window(row["step"], start, window.end_ns))
    return windows, offset
