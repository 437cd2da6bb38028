from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpudoctor.analysis import exposed, intervals
from gpudoctor.analysis.intervals import ints
from gpudoctor.ingest import kineto
from gpudoctor.ingest.kineto.numbers import MISSING
from tests.shared_traces import FOLDER, shared_trace

REFERENCE = FOLDER / "reference.json"
TRACES = sorted(json.loads(REFERENCE.read_text())) if REFERENCE.exists() else [REFERENCE.name]

LIBRARIES = re.compile("nccl|rccl", re.IGNORECASE)
"""What the reference takes for communication; `kernel_class` knows more (symmetric memory's `multimem_…` kernels)."""

COMPUTE, COMMUNICATION, COPY = exposed.COMPUTE, exposed.COMMUNICATION, exposed.COPY


def ends(rows: list[tuple[int, int]]) -> tuple[intervals.Ints, intervals.Ints]:
    return ints([start for start, _ in rows]), ints([end - start for start, end in rows])


def judged(rows: list[tuple[int, int, int]], devices: list[int] | None = None) -> list[int]:
    start, dur = ends([(a, b) for a, b, _ in rows])
    role = np.array([role for _, _, role in rows], np.int8)
    return exposed.exposed_ns(start, dur, ints(devices or [0] * len(rows)), role)[0].tolist()


def test_a_kernel_hides_communication_and_both_hide_a_copy() -> None:
    assert judged([(0, 10, COMPUTE), (5, 20, COMMUNICATION), (15, 30, COPY)]) == [0, 10, 10]


def test_overlapping_copies_share_the_time_nothing_hides() -> None:
    assert judged([(0, 10, COPY), (0, 4, COPY), (8, 14, COPY)]) == [10, 0, 4]


def test_another_device_hides_nothing() -> None:
    assert judged([(0, 10, COMPUTE), (0, 10, COPY)], [0, 1]) == [0, 10]


def test_negative_durations_cover_nothing() -> None:
    assert judged([(5, 2, COMPUTE), (0, 10, COMMUNICATION), (7, 3, COPY)]) == [0, 10, 0]


def test_nothing_gives_nothing() -> None:
    made, means = exposed.exposed_ns(ints([]), ints([]), ints([]), np.empty(0, np.int8))
    assert not len(made) and not len(means)


def held(
    rows: list[tuple[int, int, int]], launched: list[int], blocked: list[tuple[int, int]] | None = None
) -> list[int]:
    start, dur = ends([(a, b) for a, b, _ in rows])
    role = np.array([role for _, _, role in rows], np.int8)
    waits = intervals.merge(ints([a for a, _ in blocked or []]), ints([b for _, b in blocked or []]))
    return exposed.held_ns(start, dur, ints([0] * len(rows)), role, ints(launched), waits).tolist()


def test_a_copy_holds_the_step_from_the_launch_of_the_kernel_behind_it() -> None:
    assert held([(10, 30, COPY), (30, 40, COMPUTE)], [5, 8]) == [20, 0]
    assert held([(10, 30, COPY), (30, 40, COMPUTE)], [5, 25]) == [5, 0]


def test_a_copy_that_runs_alone_because_nothing_else_is_launched_holds_nothing() -> None:
    assert held([(10, 30, COPY), (50, 60, COMPUTE)], [5, 48]) == [0, 0]


def test_a_copy_that_the_host_waits_for_holds_the_step() -> None:
    assert held([(10, 30, COPY), (50, 60, COMPUTE)], [5, 48], [(6, 28)]) == [18, 0]


def test_each_stretch_of_a_copy_is_judged_by_the_kernel_that_ends_it() -> None:
    rows = [(0, 40, COPY), (10, 20, COMPUTE), (30, 50, COMPUTE)]
    assert held(rows, [-5, 9, 21]) == [1 + 9, 0, 0]


def test_a_collective_is_held_by_computing_only() -> None:
    assert held([(0, 20, COMMUNICATION), (20, 25, COPY), (60, 70, COMPUTE)], [-5, -4, 55]) == [0, 0, 0]


def test_what_ran_before_the_first_recorded_launch_was_launched_before_the_recording() -> None:
    assert held([(0, 20, COMMUNICATION), (20, 30, COMPUTE), (40, 50, COMPUTE)], [MISSING, MISSING, 35]) == [20, 0, 0]


def test_what_has_no_launch_later_is_not_taken_for_launched() -> None:
    assert held([(0, 5, COMPUTE), (10, 20, COPY), (20, 30, COMPUTE)], [-3, -2, MISSING]) == [0, 0, 0]


def figures(path: Path) -> dict[str, dict[str, int]]:
    """What the reference has, computed from the reader's columns."""
    trace = kineto.read(path)
    table = trace.table("device")
    if not len(table):
        return {}
    names = np.array([LIBRARIES.search(name) is not None for name in trace.columns.names])
    role = exposed.roles(table["activity"] == 1, names[table["name"]] & (table["activity"] == 0))
    start, dur, device = table["start_ns"], table["dur_ns"], table["device"]
    device = np.where(device == MISSING, 0, device)  # one hand-made trace does not say its only device
    own, _ = exposed.exposed_ns(start, dur, device, role)
    made = {}
    for one in np.unique(device):
        here = device == one
        compute, communication, copies = exposed.unions(start[here], (start + dur)[here], role[here])
        made[str(one)] = {
            "busy_ns": intervals.union(compute, communication, copies).total,
            "compute_union_ns": compute.total,
            "comm_union_ns": communication.total,
            "memcpy_union_ns": copies.total,
            "exposed_comm_ns": int(own[here & (role == COMMUNICATION)].sum()),
            "exposed_memcpy_ns": int(own[here & (role == COPY)].sum()),
            "comp_comm_overlap_ns": intervals.intersect(compute, communication).total,
        }
    return made


@pytest.mark.parametrize("name", TRACES)
def test_every_figure_of_the_reference_is_reproduced_to_the_nanosecond(name: str) -> None:
    path = shared_trace(name)
    expected: dict[str, Any] = json.loads(REFERENCE.read_text())[name]["devices"]
    made = figures(path)
    assert made.keys() == expected.keys()
    for device, want in expected.items():
        assert made[device] == {key: want[key] for key in made[device]}
