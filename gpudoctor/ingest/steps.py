"""Cuts the watch log into training steps and fills the tables `steps` and `batches`.

A step ends where the caller says so, else where the optimizer's period ends. Without optimizer steps (manual updates,
a compiled optimizer step) every backward call ends one; without those every batch does (inference).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from gpudoctor.ingest.watch import Batch, Span, WatchLog, loop_thread

FIRST_STEPS = 2  # they create optimizer state and fill caches: never steady
COMPILE_PHASE_GAP = 3  # a compile within so many steps of the last warm-up step still belongs to the warm-up
MAX_PERIOD = 64  # optimizer steps in one training step; a loop with more would be cut at every optimizer step
PERIOD_AGREEMENT = 0.9  # share of optimizer steps that must repeat one period earlier; the rest are skips


def cut(log: WatchLog) -> tuple[list[int], str | None]:
    """Ends of all steps in nanoseconds, and what ended them: call, optimizer, backward, dataloader, or None."""
    if log.stated:
        return [span.end_ns for span in log.stated], "call"
    if log.optimizer_steps:
        return _optimizer_ends(log), "optimizer"
    if len(log.backwards) > 1:
        return [span.end_ns for span in log.backwards], "backward"
    if len(log.batches) > 1:
        return [batch.start_ns for batch in log.batches[1:]], "dataloader"
    return [], None


def _optimizer_ends(log: WatchLog) -> list[int]:
    ends: list[int] = []
    order: list[int] = []
    last_backward: int | None = None
    starts = [span.start_ns for span in log.backwards]
    for step in log.optimizer_steps:
        if step.in_backward:  # one backward call steps many optimizers: together they are one step
            at = bisect_right(starts, step.start_ns) - 1
            if at == last_backward and order:
                continue
            last_backward = at
            ends.append(log.backwards[at].end_ns if at >= 0 else step.end_ns)
            order.append(-1)
        else:
            ends.append(step.end_ns)
            order.append(step.optimizer)
    size = period(order)
    return [end for number, end in enumerate(ends, 1) if number % size == 0]


def period(order: Sequence[int]) -> int:
    """Optimizer steps that make one training step: 1 for one optimizer, 3 for a GAN that trains D twice.

    The smallest P such that nearly all entries equal the one P earlier and P entries hold every optimizer; 1 when the
    order has no period.
    """
    known = len(set(order))
    if known == 1:
        return 1
    for size in range(known, min(MAX_PERIOD, len(order) // 2) + 1):
        pairs = list(zip(order[size:], order, strict=False))
        same = sum(a == b for a, b in pairs)
        if same >= PERIOD_AGREEMENT * len(pairs) and len(set(order[:size])) == known:
            return size
    return 1


def tables(log: WatchLog, bursts: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `steps` and `batches`.

    Args:
        log: the watch log.
        bursts: content of bursts.json.
    """
    ends, source = cut(log)
    if not ends:
        return [], [_batch(batch, []) for batch in log.batches]
    firsts = [s.start_ns for s in (*log.stated[:1], *log.batches[:1], *log.backwards[:1], *log.optimizer_steps[:1])]
    started = [s.start_ns for s in log.compilations if s.start_ns < ends[0]]
    start = min([*firsts, *started[:1]])
    trains = loop_thread(log)
    # a batch that another thread takes is prefetched: the loop does not wait for it
    waited = [batch for batch in log.batches if trains is None or batch.thread in (None, trains)]
    phases = {
        "compile_ns": merge(log.compilations),
        "input_ns": merge(waited),
        "backward_ns": merge(log.backwards),
        "optimizer_ns": merge(log.optimizer_steps),
    }
    rows = []
    for number, end in enumerate(ends):
        begun, observation = _observed(log, start, end, bursts)
        row: dict[str, Any] = {"step": number, "start_ns": begun, "dur_ns": max(0, end - begun)}
        row |= {"observation": observation, "batches": 0, "source": source}
        row |= {name: covered(spans, begun, end) for name, spans in phases.items()}
        rows.append(row)
        start = end
    warm = _warm_up(rows)
    for row in rows:
        row["warmup"] = row["step"] < warm
    batches = [_batch(batch, ends) for batch in waited]
    for batch in batches:
        if batch["step"] is not None and batch["step"] < len(rows):
            row = rows[batch["step"]]
            row["batches"] += 1
            row["epoch"] = batch["epoch"]
    return rows, batches


def _observed(log: WatchLog, start: int, end: int, bursts: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """When a step really began, and how it was watched."""
    own = [work for work in log.own_work if start <= work.start_ns < end]
    observation = "disturbed" if own else "bare"
    # gpudoctor works right after a boundary: the step begins when that is done
    start = max([start, *(work.end_ns for work in own)])
    for mark in log.marks:
        inside = start <= mark.start_ns < end
        if inside and mark.burst < len(bursts) and mark.number in bursts[mark.burst]["taken"]:
            observation, start = bursts[mark.burst]["label"], mark.start_ns
    return start, observation


def merge(spans: Iterable[Span]) -> list[Span]:
    """The union of spans as disjoint spans in time order."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        if merged and span.start_ns <= merged[-1].end_ns:
            merged[-1] = Span(merged[-1].start_ns, max(merged[-1].end_ns, span.end_ns))
        else:
            merged.append(Span(span.start_ns, span.end_ns))
    return merged


def covered(spans: Sequence[Span], start: int, end: int) -> int:
    """Nanoseconds of [start, end) that lie in disjoint spans in time order."""
    first = bisect_right(spans, start, key=lambda span: span.end_ns)
    inside = itertools.takewhile(lambda span: span.start_ns < end, itertools.islice(spans, first, None))
    return sum(min(span.end_ns, end) - max(span.start_ns, start) for span in inside)


def _warm_up(rows: Sequence[dict[str, Any]]) -> int:
    """Number of warm-up steps: the first two, and the compile phase that begins in them; at most half of all."""
    warm = FIRST_STEPS
    for row in rows:
        if row["compile_ns"] and row["step"] < warm + COMPILE_PHASE_GAP - 1:
            warm = max(warm, row["step"] + 1)
    return min(warm, max(FIRST_STEPS, len(rows) // 2))


def _batch(batch: Batch, ends: Sequence[int]) -> dict[str, Any]:
    step = bisect_left(ends, batch.end_ns)
    return {
        "loader": batch.loader,
        "step": step if step < len(ends) else None,
        "epoch": batch.epoch,
        "position": batch.position,
        "start_ns": batch.start_ns,
        "wait_ns": batch.end_ns - batch.start_ns,
        "fetch_ns": batch.fetch_ns,
        "collate_ns": batch.collate_ns,
        "size": batch.size,
    }


def step_at(rows: Sequence[dict[str, Any]], time_ns: int) -> int | None:
    """Number of the step that was running at a time; None before the first began and after the last ended."""
    at = bisect_left([row["start_ns"] + row["dur_ns"] for row in rows], time_ns)
    if at == len(rows) or time_ns < rows[0]["start_ns"]:
        return None
    return int(rows[at]["step"])
