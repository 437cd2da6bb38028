"""How a saving reads."""

from __future__ import annotations

import pytest

from gpudoctor.diagnosis import Saving
from gpudoctor.reporters import savings

BASIS = "upper bound: 6 profiled steps replayed without it"
MODEL = "model: half of it; 6 profiled steps replayed with that"


def replayed(low: int, ns: int, high: int, **more: object) -> Saving:
    """A saving in a step of 20 ms."""
    return Saving(ns, ns / 20_000_000, "simulated", low_ns=low, high_ns=high, **{"basis": BASIS, **more})  # type: ignore[arg-type]


def test_only_a_measured_saving_stands_without_the_sign_of_a_bound() -> None:
    assert savings.amount(Saving(1_000_000, 0.1, "measured")) == "1.00 ms/step"
    assert savings.amount(Saving(1_000_000, 0.1, "simulated")) == "≤ 1.00 ms/step"
    assert savings.amount(Saving(1_000_000, 0.1, basis="model: half of it")) == "≈ 1.00 ms/step"
    assert savings.grade(Saving(1, 0.1, basis="model: half of it")) == "estimated (by a model)"
    assert savings.grade(Saving(1, 0.1, "measured")) == "measured"
    assert savings.grade(Saving(1, 0.1, "estimated")) == "estimated (upper bound)"


@pytest.mark.parametrize(
    ("saving", "amount", "share"),
    [
        (replayed(2_100_000, 3_000_000, 4_300_000), "2.10 to 4.30 ms/step", "11 to 22 % of the step"),
        (replayed(812_000, 900_000, 1_200_000), "812 µs to 1.20 ms/step", "4.1 to 6.0 % of the step"),
        (replayed(2_100_000, 3_000_000, 4_300_000, basis=MODEL), "≈ 2.10 to 4.30 ms/step", "11 to 22 % of the step"),
        (replayed(4_300_000, 4_300_000, 4_300_400), "≤ 4.30 ms/step", "22 % of the step"),
        (replayed(4_300_000, 4_300_000, 4_300_400, basis=MODEL), "≈ 4.30 ms/step", "22 % of the step"),
        (replayed(0, 3_000_000, 4_300_000), "≤ 4.30 ms/step", "22 % of the step"),
        (replayed(0, 0, 4_300_000), "≤ 4.30 ms/step", ""),
        (replayed(10_000_000, 15_000_000, 30_000_000), "10.0 to 30.0 ms/step", "50 to 100 % of the step"),
    ],
)
def test_a_simulated_saving_is_a_range_unless_its_ends_read_alike(saving: Saving, amount: str, share: str) -> None:
    assert savings.amount(saving) == amount
    assert savings.share(saving) == share


def test_memory_and_compile_time_stand_in_their_own_units() -> None:
    assert savings.amount(Saving(0, 0.0, memory_bytes=3 << 29)) == "≤ 1.50 GiB of memory"
    assert savings.amount(Saving(0, 0.0, compile_ns=3_200_000_000)) == "≤ 3.20 s of compiling"
    both = Saving(1_000_000, 0.1, memory_bytes=3 << 29)
    assert savings.amount(both) == "≤ 1.00 ms/step, ≤ 1.50 GiB of memory"
    assert savings.share(Saving(0, 0.0, memory_bytes=3 << 29)) == ""


@pytest.mark.parametrize(
    ("adds", "said"),
    [
        (None, ""),
        (3_000_000, ""),
        (2_800_000, ""),
        (1_200_000, "1.20 ms of it on top of the findings above"),
        (0, "nothing of it on top of the findings above"),
        (4_100_000, "4.10 ms once the findings above are fixed"),
    ],
)
def test_what_it_adds_is_said_where_it_differs(adds: int | None, said: str) -> None:
    assert savings.addition(replayed(3_000_000, 3_000_000, 3_000_000, adds_ns=adds)) == said


def test_the_sentence_has_share_grade_and_addition() -> None:
    saving = replayed(3_000_000, 3_000_000, 3_000_000, adds_ns=0)
    assert savings.sentence(saving) == (
        "15 % of the step, simulated (upper bound); nothing of it on top of the findings above"
    )
