from __future__ import annotations

import numpy as np
import pytest

from gpudoctor.analysis.device_budget import LATENCY_NS
from gpudoctor.analysis.frames import integers, is_one_of
from gpudoctor.analysis.intervals import Ints, ints, merge
from gpudoctor.analysis.waits import Waits, caught_up, charge
from gpudoctor.ingest import open_path
from tests.shared_traces import shared_trace

NEVER = np.iinfo(np.int64).max


def charged(
    waits: list[tuple[int, int, bool]], busy: list[tuple[int, int]], idle: list[tuple[int, int]], until: int = NEVER
) -> list[tuple[int, int, int]]:
    """(begin, end, wait) of each piece of the idle stretches; a long wait is one of 50."""
    columns: list[Ints] = [ints([row[at] for row in waits]) for at in (0, 1)]
    device = np.array([row[2] for row in waits], bool)
    given = Waits(columns[0], columns[1], device, np.full(len(waits), until, np.int64))
    spans = merge(ints([a for a, _ in busy]), ints([b for _, b in busy]))
    made = charge(given, spans, ints([a for a, _ in idle]), ints([b for _, b in idle]), 50)
    return list(zip(made[0].tolist(), made[1].tolist(), made[3].tolist(), strict=True))


def test_a_wait_is_charged_as_much_as_the_device_was_busy_during_it() -> None:
    assert charged([(0, 100, True)], [(0, 60)], [(100, 140), (150, 200)]) == [
        (100, 140, 0),
        (150, 170, 0),
        (170, 200, -1),
    ]


def test_idle_time_before_a_wait_is_not_its() -> None:
    assert charged([(100, 200, True)], [(100, 200)], [(0, 50), (210, 220)]) == [(0, 50, -1), (210, 220, 0)]


def test_a_long_wait_for_the_device_voids_older_credit() -> None:
    waits = [(0, 100, True), (200, 260, True)]
    assert charged(waits, [(0, 100), (200, 260)], [(110, 120), (300, 400)]) == [
        (110, 120, 0),
        (300, 360, 1),
        (360, 400, -1),
    ]


def test_a_second_read_that_finds_the_device_done_voids_nothing() -> None:
    waits = [(0, 100, True), (110, 112, True)]
    assert charged(waits, [(0, 100)], [(120, 150)]) == [(120, 150, 0)]


def test_input_on_top_of_a_wait_is_charged_first() -> None:
    waits = [(0, 100, True), (110, 150, False)]
    assert charged(waits, [(0, 130)], [(160, 200), (210, 300)]) == [
        (160, 180, 1),
        (180, 200, 0),
        (210, 290, 0),
        (290, 300, -1),
    ]


def test_credit_expires_when_the_host_is_ahead_again() -> None:
    assert charged([(0, 100, True)], [(0, 100)], [(110, 130), (200, 220)], until=150) == [(110, 130, 0), (200, 220, -1)]


def test_without_waits_or_idle_time_nothing_is_charged() -> None:
    assert charged([], [], [(0, 10)]) == [(0, 10, -1)]
    assert charged([(0, 100, True)], [(0, 100)], []) == []


def test_the_host_is_ahead_when_an_activity_had_waited_in_the_queue() -> None:
    launched, returned, begun = ints([10, 20, 30]), ints([12, 22, 32]), ints([15, 200, 300])
    assert caught_up(ints([0, 25, 40]), launched, returned, begun, 100).tolist() == [200, 300, NEVER]


@pytest.mark.parametrize(
    "name",
    [
        "hta/trace_diff_control__control.json.gz",
        "param/dlrm8__worker4_step_12.1694128201547.pt.trace.json.gz",
        "tbplugin/resnet50_num_workers_4.1623212756351.pt.trace.json.gz",
    ],
)
def test_no_synchronisation_in_a_real_trace_owns_more_idle_time_than_it_lasted(name: str) -> None:
    profile = open_path(shared_trace(name))
    gaps, calls = profile.table("gaps"), profile.table("runtime_calls").set_index("call")
    gaps = gaps[is_one_of(gaps, "owner", "sync") & gaps["call"].notna().to_numpy()]
    assert len(gaps)
    at = calls.loc[integers(gaps, "call")]
    assert (integers(gaps, "start_ns") >= integers(at, "start_ns")).all()
    owned = gaps.groupby("call")["dur_ns"].sum()
    lasted = calls.loc[owned.index, "dur_ns"]
    assert (owned.to_numpy() <= lasted.to_numpy() + LATENCY_NS).all()
