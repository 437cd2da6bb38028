from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.recorder.loop import Loop, Signal, period


def boundaries(loop: Loop, events: str) -> list[bool]:
    """Feeds letters: a, b, c are optimizers, B a backward call, D a batch."""
    return [
        loop.backward() if event == "B" else loop.batch() if event == "D" else loop.optimizer(ord(event))
        for event in events
    ]


def test_one_optimizer_ends_a_step_each_time() -> None:
    assert boundaries(Loop(), "DBaDBaDBa") == [False, False, True] * 3


def test_gradient_accumulation_ends_a_step_only_at_the_optimizer() -> None:
    loop = Loop()
    ended = boundaries(loop, "BBBBaBBBBaBBBBa")
    assert [at for at, end in enumerate(ended) if end and at > 4] == [9, 14]
    assert loop.signal is Signal.OPTIMIZER


def test_a_gan_that_trains_its_discriminator_twice_has_steps_of_three() -> None:
    loop = Loop()
    ended = boundaries(loop, "aabaabaabaab")
    assert [at for at, end in enumerate(ended) if end and at >= 6] == [8, 11]


def test_a_second_optimizer_revises_the_belief_once() -> None:
    loop = Loop()
    boundaries(loop, "aa")
    assert not loop.take_revision()
    boundaries(loop, "b")
    assert loop.take_revision()
    assert not loop.take_revision()


def test_manual_updates_end_steps_at_backward() -> None:
    loop = Loop()
    ended = boundaries(loop, "BBBBBB")
    assert ended == [False, False, False, True, True, True]
    assert loop.signal is Signal.BACKWARD


def test_inference_ends_steps_at_batches_until_a_backward_comes() -> None:
    loop = Loop()
    assert boundaries(loop, "DDDDD")[-2:] == [True, True]
    assert boundaries(loop, "BD") == [False, False]


@pytest.mark.parametrize(
    ("order", "expected"),
    [([0, 0], 1), ([0, 1, 0, 1], 2), ([0, 0, 1, 0, 0, 1], 3), ([0, 1], None), ([], None)],
)
def test_period(order: list[int], expected: int | None) -> None:
    assert period(order) == expected


@given(st.lists(st.sampled_from("abBD"), max_size=60))
def test_no_sequence_of_events_breaks_it(events: list[str]) -> None:
    assert len(boundaries(Loop(), "".join(events))) == len(events)
