from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpudoctor.ingest import updates
from gpudoctor.ingest.watch import Backward, OptimizerStep, WatchLog


def log(events: str) -> WatchLog:
    """One letter is 10 ns: B a backward call, others optimizers; a bracket opens a step that its letter closes."""
    made, opened = WatchLog(), []
    for at, event in enumerate(events):
        t = at * 10
        if event == "B":
            made.backwards.append(Backward(t, t + 9))
        elif event == "(":
            opened.append(t)
        elif event != " ":
            begun = opened.pop() if event.isupper() else t
            made.optimizer_steps.append(OptimizerStep(begun, t + 9, ord(event), False, 1))
    return made


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        ("BaBaBa", 3),
        ("BBBBaBBBBa", 2),  # accumulation
        ("BabBabBab", 3),  # two optimizers after one backward call
        ("BaBaBaBabBabBab", 6),  # the second one joins later
        ("BaBaBbBaBaBbBaBaBb", 3),  # a GAN that trains D twice
        ("B(aLB(aLB(asLB(aL", 4),  # Lookahead: the wrapper's step is the update
        ("B(aBaSB(aBaS", 2),  # SAM in one step
        ("B(BaLB(BaL", 2),
        ("aaaa", 4),  # gradients that no backward call made
    ],
)
def test_updates_are_counted(events: str, steps: int) -> None:
    assert len(updates.optimizer_ends(log(events))) == steps


def test_a_step_inside_another_threads_step_is_not_inside_it() -> None:
    steps = [OptimizerStep(10, 20, 1, False, 1), OptimizerStep(0, 30, 2, False, 2)]
    assert updates.outermost(steps) == steps


@pytest.mark.parametrize(
    ("order", "expected"),
    [([1] * 5, 1), ([1, 2] * 4, 2), ([1, 1, 2] * 5, 3), ([1, 2], 1), ([1, 1, 2] * 6 + [1, 2], 3)],
)
def test_period_of_optimizers(order: Sequence[int], expected: int) -> None:
    assert updates.period(order) == expected


def test_backward_calls_that_accumulate_end_no_step() -> None:
    calls = [Backward(10 * i, 10 * i + 5, 1, continues=i % 4 != 0) for i in range(8)]
    assert updates.backward_ends(calls) == [35, 75]


def test_gradients_to_be_differentiated_again_end_no_step_unless_there_are_no_others() -> None:
    calls = [Backward(10 * i, 10 * i + 5, 1, False, creates_graph=i % 2 == 0) for i in range(4)]
    assert updates.backward_ends(calls) == [15, 35]
    assert updates.backward_ends(calls[::2]) == [5, 25]
