"""Finds validation in the watch log: passes over a loader in which nothing is trained, in a run that trains."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.ingest.watch import Batch, Span, WatchLog, loop_thread


@dataclass(slots=True)
class _Pass:
    batches: list[Batch]
    end_ns: int
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class Validation(Span):
    """One pass: until the loop asks for a batch to train on, or until the loader was exhausted."""

    batches: tuple[Batch, ...]


def waited_for(log: WatchLog) -> list[Batch]:
    """The batches that the loop's own thread took: one that another thread takes is prefetched, nobody waits for it."""
    trains = loop_thread(log)
    return [batch for batch in log.batches if trains is None or batch.thread in (None, trains)]


def passes(log: WatchLog, waited: Sequence[Batch]) -> list[Validation]:
    """Passes over a loader without a backward call in them, in time order.

    A pass of one batch that was not exhausted is none: a loop may take single batches from a second loader. Nor is one
    whose batches were only kept, and trained on afterwards.

    Args:
        log: the watch log.
        waited: the batches that the loop's own thread took.
    """
    begun = sorted(span.start_ns for span in log.backwards) or [step.start_ns for step in log.optimizer_steps]
    if not begun:
        return []
    asked = [batch.start_ns for batch in waited]
    found = []
    for one in _passes(log, waited):
        first = one.batches[0].start_ns
        if not one.exhausted and len(one.batches) == 1:
            continue
        trained = bisect_left(begun, one.end_ns)
        if trained != bisect_left(begun, first):
            continue
        at = bisect_left(asked, one.end_ns)
        following = asked[at] if at < len(asked) else None
        later = len(begun) if following is None else bisect_left(begun, following)
        if later - trained >= len(one.batches):  # kept, then trained on
            continue
        end = following if following is not None and later == trained else one.end_ns
        found.append(Validation(first, end, tuple(one.batches)))
    return found


def _passes(log: WatchLog, waited: Sequence[Batch]) -> list[_Pass]:
    by_key: dict[tuple[int, int], _Pass] = {}
    for batch in waited:
        one = by_key.setdefault((batch.loader, batch.epoch), _Pass([], batch.end_ns))
        one.batches.append(batch)
        one.end_ns = batch.end_ns
    for end in log.epoch_ends:
        known = by_key.get((end.loader, end.epoch))
        if known is not None:
            known.end_ns, known.exhausted = end.end_ns, True
    return sorted(by_key.values(), key=lambda one: one.batches[0].start_ns)
