"""Reads the whole-run watch (`watch.jsonl`) into typed rows.

The format is described in `gpudoctor.recorder.watch`. A last line cut off by a killed process is dropped and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """Something with a begin and an end, nanoseconds from the recording's zero."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Backward(Span):
    """A backward call, outermost.

    Attributes:
        thread: the thread that called it.
        continues: no parameter or gradient was touched since the call before it: it accumulates.
        creates_graph: its gradients are made to be differentiated again.
        autocast: autocast's dtype and the line of the call, when it was called under autocast.
    """

    thread: int | None = None
    continues: bool = False
    creates_graph: bool = False
    autocast: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OptimizerStep(Span):
    """An optimizer step; `in_backward` when it ran inside a backward call."""

    optimizer: int
    in_backward: bool
    thread: int | None = None


@dataclass(frozen=True, slots=True)
class ScalerStep(Span):
    """A step that went through gradient scaler number `scaler`."""

    scaler: int
    skipped: bool


@dataclass(frozen=True, slots=True)
class Batch(Span):
    """A batch taken from a loader."""

    loader: int
    epoch: int
    position: int
    size: int | None
    fetch_ns: int | None
    collate_ns: int | None
    thread: int | None = None
    cpu_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Iterator(Span):
    """An iterator over a loader was made; its workers were started in that time."""

    loader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd(Span):
    """A loader was exhausted."""

    loader: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Compilation(Span):
    """A compilation: `kind` is dynamo or backward; `file` and `line` are the user's line that called the code."""

    compile_id: str
    kind: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class OwnWork(Span):
    """gpudoctor's own work at a boundary: start or stop of burst number `burst`."""

    burst: int
    what: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A profiled step began: `number` as in its ProfilerStep range."""

    start_ns: int
    number: int
    burst: int


@dataclass(frozen=True, slots=True)
class ExplicitCall(Span):
    """A call of `what` (`torch.cuda.synchronize`, …) under the user's line; `by_user`: made by that very line.

    One of `gc.collect` is a collection of `generation` in code that collects by hand; it may have begun by itself.
    """

    what: str
    file: str | None = None
    line: int | None = None
    function: str | None = None
    by_user: bool = True
    thread: int | None = None
    generation: int | None = None


@dataclass(slots=True)
class WatchLog:
    """Everything in a watch log, each kind in time order; `stated` are steps whose end the caller stated.

    Attributes:
        worker_times: batches that a loader's workers made, and their wall and CPU nanoseconds in all.
        work: start, end, number, calls and time of what printed, saved or collected garbage; `kinds` has the numbers.
        memory: time, device and statistics of the CUDA allocator after a step.
        resident: time and bytes of the process in memory after a step.
        damaged: lines that could not be read.
        last_ns: end of the last event.
    """

    optimizer_steps: list[OptimizerStep] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)
    stated: list[Span] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    iterators: list[Iterator] = field(default_factory=list)
    worker_times: list[dict[str, int]] = field(default_factory=list)
    epoch_ends: list[EpochEnd] = field(default_factory=list)
    compilations: list[Compilation] = field(default_factory=list)
    own_work: list[OwnWork] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    explicit_calls: list[ExplicitCall] = field(default_factory=list)
    loaders: list[dict[str, Any]] = field(default_factory=list)
    compile_calls: list[dict[str, Any]] = field(default_factory=list)
    schedulers: list[dict[str, Any]] = field(default_factory=list)
    scalers: list[dict[str, Any]] = field(default_factory=list)
    scaler_steps: list[ScalerStep] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    wrappers: list[dict[str, Any]] = field(default_factory=list)
    work: list[list[int]] = field(default_factory=list)
    kinds: list[dict[str, Any]] = field(default_factory=list)
    memory: list[tuple[int, ...]] = field(default_factory=list)
    resident: list[tuple[int, int]] = field(default_factory=list)
    damaged: int = 0
    last_ns: int = 0


def _add_loader(log: WatchLog, kind: str, numbers: list[int]) -> None:
    if kind == "W":
        log.worker_times.append(dict(zip(_WORKER_SUMS, numbers[2:], strict=True)))
    elif kind == "I":
        log.iterators.append(Iterator(*numbers))
    else:
        log.epoch_ends.append(EpochEnd(*numbers))
    log.last_ns = max(log.last_ns, numbers[1])


_WORKER_SUMS = ("loader", "worker_batches", "wall_ns", "cpu_ns")


def loop_thread(log: WatchLog) -> int | None:
    """The thread that trains: the one with most optimizer steps, else most backward calls."""
    threads = Counter(e.thread for e in (log.optimizer_steps or log.backwards) if e.thread is not None)
    return threads.most_common(1)[0][0] if threads else None


def read(path: Path) -> WatchLog:
    """Reads `watch.jsonl`; a missing file is an empty log."""
    log = WatchLog()
    if not path.is_file():
        return log
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                _add(log, json.loads(line))
            except (ValueError, TypeError, IndexError, KeyError):
                log.damaged += 1
    return log


def _add_work(log: WatchLog, kind: str, start: int, end: int, rest: list[Any]) -> None:
    """Adds work between the steps' own: the script's explicit calls, and gpudoctor's."""
    if kind == "X":
        log.explicit_calls.append(ExplicitCall(start, end, *rest))
    else:
        log.own_work.append(OwnWork(start, end, *rest))


def _add_memory(log: WatchLog, kind: str, at: int, numbers: list[int]) -> None:
    """Adds a reading of a GPU's allocator, or of the process's memory in RAM."""
    if kind == "G":
        log.memory.append((at, *numbers))
    else:
        log.resident.append((at, numbers[0]))


def _add(log: WatchLog, row: list[Any]) -> None:
    kind = row[0]
    things: dict[str, list[Any]] = {
        "L": log.loaders,
        "C": log.compile_calls,
        "H": log.schedulers,
        "A": log.scalers,
        "Z": log.optimizers,
        "R": log.wrappers,
        "N": log.kinds,
        "Q": log.work,
    }
    made = things.get(kind)
    if made is not None:
        made.append(row[1])
        return
    if kind in ("E", "I", "W"):
        _add_loader(log, kind, list(map(int, row[1:])))
        return
    start, end, rest = int(row[1]), int(row[2]), row[3:]
    match kind:
        case "O" | "S":
            log.optimizer_steps.append(OptimizerStep(start, end, int(rest[0]), bool(rest[1]), *rest[2:3]))
        case "B":
            log.backwards.append(Backward(start, end, *rest[:1], *map(bool, rest[1:3]), *rest[3:4]))
        case "V":
            log.scaler_steps.append(ScalerStep(start, end, int(rest[0]), bool(rest[1])))
        case "T":
            log.stated.append(Span(start, end))
        case "D":
            log.batches.append(Batch(start, end, *rest))
        case "K":
            log.compilations.append(Compilation(start, end, *rest))
        case "G" | "U":
            _add_memory(log, kind, start, list(map(int, rest)))
        case "X" | "P":
            _add_work(log, kind, start, end, rest)
        case "M":
            log.marks.append(Mark(start, *rest))
        case _:
            raise ValueError(f"unknown row kind {kind!r}")
    log.last_ns = max(log.last_ns, end)
