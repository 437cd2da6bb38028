"""Cuts the watch log into training steps and fills the tables `steps` and `batches`.

A step ends where the caller says so, else where the optimizer's period ends. Without optimizer steps (manual updates,
a compiled optimizer step) every backward call ends one; without those every batch does (inference).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from gpudoctor.ingest.updates import backward_ends, optimizer_ends
from gpudoctor.ingest.validation import passes, waited_for
from gpudoctor.ingest.watch import Batch, Span, WatchLog

FIRST_STEPS = 2  # they create optimizer state and fill caches: never steady
COMPILE_PHASE_GAP = 3  # a compile within so many steps of the last warm-up step still belongs to the warm-up


def cut(log: WatchLog) -> tuple[list[int], str | None]:
    """Ends of all steps in nanoseconds, and what ended them: call, optimizer, backward, dataloader, or None."""
    if log.stated:
        return [span.end_ns for span in log.stated], "call"
    if log.optimizer_steps:
        return optimizer_ends(log), "optimizer"
    if len(log.backwards) > 1:
        return backward_ends(log.backwards), "backward"
    if len(log.batches) > 1:
        return [batch.start_ns for batch in log.batches[1:]], "dataloader"
    return [], None


def tables(log: WatchLog, bursts: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `steps` and `batches`.

    Args:
        log: the watch log.
        bursts: content of bursts.json.
    """
    waited = waited_for(log)
    validations = passes(log, waited)
    ends, source = cut(log)
    if not ends:
        return [], [_batch(batch, [], False) for batch in log.batches]
    firsts = [s.start_ns for s in (*log.stated[:1], *log.batches[:1], *log.backwards[:1], *log.optimizer_steps[:1])]
    started = [s.start_ns for s in log.compilations if s.start_ns < ends[0]]
    start = min([*firsts, *started[:1]])
    validated = {id(batch) for one in validations for batch in one.batches}
    trained = [batch for batch in waited if id(batch) not in validated]
    events = sorted(span.start_ns for spans in (log.backwards, log.optimizer_steps, trained) for span in spans)
    phases = _phases(log, trained)
    rows = []
    for number, end in enumerate(ends):
        begun, observation = _observed(log, start, end, bursts, events)
        inside = [one for one in validations if start <= one.start_ns < end]
        for one in inside:
            if bisect_left(events, start) == bisect_left(events, one.start_ns):
                begun = max(begun, min(one.end_ns, end))  # it ran before the step's own work: the step begins behind it
            else:
                observation = "disturbed"
        row: dict[str, Any] = {"step": number, "start_ns": begun, "dur_ns": max(0, end - begun)}
        row |= {"observation": observation, "batches": 0, "source": source}
        row |= {name: covered(spans, begun, end) for name, spans in phases.items()}
        row["validation_ns"] = sum(min(one.end_ns, end) - one.start_ns for one in inside)
        rows.append(row)
        start = end
    warm = _warm_up(rows)
    for row in rows:
        row["warmup"] = row["step"] < warm
    batches = [_batch(batch, ends, id(batch) in validated) for batch in waited]
    for batch in batches:
        if batch["step"] is not None and batch["step"] < len(rows):
            row = rows[batch["step"]]
            row["batches"] += 1
            row["epoch"] = batch["epoch"]
    return rows, batches


def _phases(log: WatchLog, trained: Sequence[Batch]) -> dict[str, list[Span]]:
    """Disjoint spans of what the watch times in a step. A nanosecond counts once."""
    starts = [span.start_ns for span in log.backwards]
    inside: list[Span] = []
    optimizing: list[Span] = []
    for step in log.optimizer_steps:
        if step.in_backward:
            inside.append(step)
            continue
        # a closure runs forward and backward inside the step: the optimizer's own work is what follows them
        at = bisect_left(starts, step.end_ns) - 1
        last = log.backwards[at].end_ns if at >= 0 and starts[at] >= step.start_ns else step.start_ns
        optimizing.append(Span(min(last, step.end_ns), step.end_ns))
    return {
        "compile_ns": merge(log.compilations),
        "input_ns": merge(trained),
        "backward_ns": without(merge(log.backwards), merge(inside)),
        "optimizer_ns": merge([*optimizing, *inside]),
    }


def _observed(
    log: WatchLog, start: int, end: int, bursts: Sequence[dict[str, Any]], events: Sequence[int]
) -> tuple[int, str]:
    """When a step really began, and how it was watched.

    A profiled window counts as this step's only when it is exactly this step: the recorder guesses boundaries while the
    script runs, and the first guesses can be wrong.
    """
    own = [work for work in log.own_work if start <= work.start_ns < end]
    marks = [mark for mark in log.marks if start <= mark.start_ns < end]
    # gpudoctor works right after a boundary: the step begins when that is done
    begun = max([start, *(work.end_ns for work in own)])
    if not marks:
        return begun, "disturbed" if own else "bare"
    mark = marks[0]
    if len(marks) == 1 and not any(work.what == "stop" and work.start_ns >= mark.start_ns for work in own):
        early = bisect_left(events, mark.start_ns) - bisect_right(events, start)
        if mark.burst < len(bursts) and mark.number in bursts[mark.burst]["taken"] and early <= 0:
            return mark.start_ns, str(bursts[mark.burst]["label"])
    return begun, "disturbed"


def profiled(rows: Sequence[dict[str, Any]], log: WatchLog) -> dict[tuple[int, int], dict[str, Any]]:
    """The rows that were profiled, by burst and the number that the recorder gave the step while it ran."""
    found = {}
    ends = [row["start_ns"] + row["dur_ns"] for row in rows]
    for mark in log.marks:
        at = bisect_right(ends, mark.start_ns)
        if at < len(rows) and rows[at]["observation"] in ("light", "detail"):
            found[mark.burst, mark.number] = rows[at]
    return found


def merge(spans: Iterable[Span]) -> list[Span]:
    """The union of spans as disjoint spans in time order."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        if merged and span.start_ns <= merged[-1].end_ns:
            merged[-1] = Span(merged[-1].start_ns, max(merged[-1].end_ns, span.end_ns))
        else:
            merged.append(Span(span.start_ns, span.end_ns))
    return merged


def without(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """What is left of disjoint spans when others are cut out; both in time order."""
    left = []
    for span in spans:
        start = span.start_ns
        first = bisect_right(holes, start, key=lambda hole: hole.end_ns)
        for hole in itertools.islice(holes, first, None):
            if hole.start_ns >= span.end_ns:
                break
            if hole.start_ns > start:
                left.append(Span(start, hole.start_ns))
            start = max(start, hole.end_ns)
        if start < span.end_ns:
            left.append(Span(start, span.end_ns))
    return left


def covered(spans: Sequence[Span], start: int, end: int) -> int:
    """Nanoseconds of [start, end) that lie in disjoint spans in time order."""
    first = bisect_right(spans, start, key=lambda span: span.end_ns)
    # by index: an iterator would walk all spans in front of the first one again, for every step
    inside = itertools.takewhile(lambda span: span.start_ns < end, map(spans.__getitem__, range(first, len(spans))))
    return sum(min(span.end_ns, end) - max(span.start_ns, start) for span in inside)


def _warm_up(rows: Sequence[dict[str, Any]]) -> int:
    """Number of warm-up steps: the first two, and the compile phase that begins in them; at most half of all."""
    warm = FIRST_STEPS
    for row in rows:
        if row["compile_ns"] and row["step"] < warm + COMPILE_PHASE_GAP - 1:
            warm = max(warm, row["step"] + 1)
    return min(warm, max(FIRST_STEPS, len(rows) // 2))


def _batch(batch: Batch, ends: Sequence[int], validation: bool) -> dict[str, Any]:
    step = bisect_left(ends, batch.end_ns)
    return {
        "loader": batch.loader,
        "step": step if step < len(ends) and not validation else None,
        "validation": validation,
        "epoch": batch.epoch,
        "position": batch.position,
        "start_ns": batch.start_ns,
        "wait_ns": batch.end_ns - batch.start_ns,
        "fetch_ns": batch.fetch_ns,
        "collate_ns": batch.collate_ns,
        "cpu_ns": batch.cpu_ns,
        "size": batch.size,
    }


def step_at(rows: Sequence[dict[str, Any]], time_ns: int) -> int | None:
    """Number of the step that was running at a time; None before the first began and after the last ended."""
    at = bisect_left([row["start_ns"] + row["dur_ns"] for row in rows], time_ns)
    if at == len(rows) or time_ns < rows[0]["start_ns"]:
        return None
    return int(rows[at]["step"])
