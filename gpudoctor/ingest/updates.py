"""Finds where training steps end in the watch log: a step is one update of the parameters.

What the loops of the wild do to that: several optimizers after one backward call, one optimizer inside another's step
(Lookahead, SAM), optimizers stepped inside backward, a period of several updates (a GAN), updates by hand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.ingest.watch import Backward, OptimizerStep, WatchLog

MAX_PERIOD = 64  # updates in one training step; a loop with more is cut at every update
PERIOD_AGREEMENT = 0.9  # share of updates that must repeat one period earlier; the rest are skips


@dataclass(frozen=True, slots=True)
class Update:
    """One update of parameters: when it ended, and by which optimizers."""

    end_ns: int
    optimizers: frozenset[int]


def optimizer_ends(log: WatchLog) -> list[int]:
    """Ends of the steps of a loop with optimizers."""
    made = updates(log)
    size = period([update.optimizers for update in made])
    return [update.end_ns for number, update in enumerate(made, 1) if number % size == 0]


def updates(log: WatchLog) -> list[Update]:
    """The updates in time order: what optimizers did after one backward call, or inside it, is one."""
    starts = [span.start_ns for span in log.backwards]
    made: list[Update] = []
    last = -1
    for step in outermost(log.optimizer_steps):
        backwards = bisect_right(starts, step.end_ns)
        end = step.end_ns
        if step.in_backward:
            at = bisect_right(starts, step.start_ns) - 1
            end = log.backwards[at].end_ns if at >= 0 else end
        same = bool(made) and backwards == last > 0
        if same and step.in_backward:
            continue
        if same and step.optimizer not in made[-1].optimizers:
            made[-1] = Update(end, made[-1].optimizers | {step.optimizer})
        else:
            # which of many optimizers a backward call steps first says nothing
            made.append(Update(end, frozenset({-1 if step.in_backward else step.optimizer})))
        last = backwards
    return made


def outermost(steps: Sequence[OptimizerStep]) -> list[OptimizerStep]:
    """Optimizer steps that no other one contains: a wrapper's step stands for those that it makes."""
    kept: list[OptimizerStep] = []
    earliest: dict[int | None, int] = {}
    for step in reversed(steps):  # they are ordered by their ends: what contains a step comes after it
        begun = earliest.get(step.thread)
        if begun is not None and begun <= step.start_ns and begun < step.end_ns:
            continue
        earliest[step.thread] = step.start_ns
        kept.append(step)
    return kept[::-1]


def period(order: Sequence[frozenset[int]] | Sequence[int]) -> int:
    """Updates that make one training step: 1 for one optimizer, 3 for a GAN that trains D twice.

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


def backward_ends(backwards: Sequence[Backward]) -> list[int]:
    """Ends of the steps of a loop that updates by hand: the last backward call before each update.

    Calls that only accumulate, and gradients made to be differentiated again, end none.
    """
    plain = [span for span in backwards if not span.creates_graph] or list(backwards)
    following = [*plain[1:], None]
    return [span.end_ns for span, after in zip(plain, following, strict=True) if after is None or not after.continues]
