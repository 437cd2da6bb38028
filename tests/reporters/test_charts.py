"""Geometry of the charts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.diagnosis import Budget, BudgetShare, StepTime
from gpudoctor.reporters.budget_bar import COLOURS, budget_bar, describe
from gpudoctor.reporters.step_chart import HEIGHT, MOST_BARS, step_chart

from . import diagnoses


def tenths(percent: str) -> int:
    if percent == "< 0.1 %":
        return 0
    whole, _, fraction = percent.removesuffix(" %").partition(".")
    return 10 * int(whole) + int(fraction or 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12).filter(any))
def test_shares_as_shown_add_up_to_a_hundred(times: list[int]) -> None:
    total = sum(times)
    shares = tuple(BudgetShare(f"owner {n}", ns, ns / total) for n, ns in enumerate(times))
    bar = budget_bar(Budget(0, total, "device", shares))
    assert sum(tenths(part.percent) for part in bar.segments) == 1000


def test_a_share_that_rounds_to_nothing_is_said_as_in_findings() -> None:
    shares = (BudgetShare("a", 99_999, 0.99999), BudgetShare("b", 1, 0.00001), BudgetShare("c", 0, 0.0))
    bar = budget_bar(Budget(0, 100_000, "device", shares))
    assert [part.percent for part in bar.segments] == ["100.0 %", "< 0.1 %", "0 %"]


def test_owners_have_colours_of_their_own_and_say_work_or_waiting() -> None:
    names = ("matmul", "framework", "something new", "compute", "input", "python", "optimizer", "operators")
    owners = describe(names)
    assert len({owner.colour for owner in owners}) == len(owners) == COLOURS
    assert owners[0].work
    assert not owners[1].work
    assert owners[2].label == "something new"


def test_more_owners_than_colours_still_get_one() -> None:
    assert all(1 <= owner.colour <= COLOURS for owner in describe(tuple(map(str, range(20)))))


def test_a_slow_step_is_cut_and_told() -> None:
    chart = step_chart(diagnoses.step_times(), 5_124_000)
    assert chart is not None
    assert [bar.words[0] for bar in chart.bars if bar.cut] == ["0", "13"]
    assert [bar.label for bar in chart.bars if bar.cut] == ["2.22 s", "1.25 s"]
    (note,) = chart.notes
    assert note.replace("\u00a0", " ") == (
        "2 bars are cut at 15 ms and broken near the top: steps 0 (2.22 s), 13 (1.25 s)."
    )


def test_steps_without_an_outlier_are_not_cut() -> None:
    chart = step_chart([StepTime(n, 5_000_000 + n, "bare", False, 0) for n in range(5)], 5_000_002)
    assert chart is not None
    assert chart.notes == ()
    assert not any(bar.cut for bar in chart.bars)


def test_compiling_stands_on_top_of_the_rest_of_its_step() -> None:
    chart = step_chart([StepTime(0, 4_000_000, "bare", False, 1_000_000)], 4_000_000)
    assert chart is not None
    (bar,) = chart.bars
    assert float(bar.compile_y) + float(bar.compile_height) == float(bar.y)
    assert float(bar.height) == 3 * float(bar.compile_height)


def test_a_long_run_is_grouped_and_says_so() -> None:
    chart = step_chart(diagnoses.many().step_times, 5_000_000)
    assert chart is not None
    assert len(chart.bars) <= MOST_BARS
    assert chart.notes[0] == "Each bar is the mean of 60 consecutive steps."
    assert "slowest 405 ms" in chart.bars[0].title


def test_a_chart_of_the_first_steps_says_how_many_there_were() -> None:
    chart = step_chart(diagnoses.step_times(), 5_124_000, seen=12_345)
    assert chart is not None
    assert chart.summary.startswith("The first 30 steps of ")


def test_no_steps_is_no_chart() -> None:
    assert step_chart((), None) is None


steps = st.builds(
    StepTime,
    st.integers(0, 10**6),
    st.integers(0, 10**15),
    st.sampled_from(["bare", "light", "detail", "disturbed", "new kind"]),
    st.booleans(),
    st.integers(0, 10**15),
)


@settings(deadline=None)
@given(st.lists(steps, min_size=1, max_size=300), st.none() | st.integers(1, 10**12))
def test_every_bar_stays_inside_the_chart(times: list[StepTime], typical: int | None) -> None:
    chart = step_chart(times, typical)
    assert chart is not None
    for bar in chart.bars:
        top = float(bar.compile_y)
        assert -0.1 <= top <= float(bar.y) + 0.1
        assert float(bar.y) + float(bar.height) <= HEIGHT + 0.1
        assert float(bar.x.rstrip("%")) + float(bar.width.rstrip("%")) <= 100.01
    assert 3 <= len(chart.y_ticks) <= 7
