"""Public allocator snapshots: sizes to the byte, and the allocator rebuilt from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpudoctor.analysis.allocator.replay import replay
from gpudoctor.analysis.allocator.settings import recorded
from gpudoctor.analysis.memory import sequence
from gpudoctor.analysis.memory.reading import reading
from gpudoctor.ingest.snapshot.contents import ACTIONS, read
from gpudoctor.ingest.snapshot.load import load
from tests.shared_traces import shared_trace

SIZES = {
    "magma27_cs336": (216, 14180941824, 1377753600, 5163),
    "silmont_fwd_bf16_128": (43, 861929472, 525286400, 2811),
    "silmont_fwd_fp32_128": (29, 610271232, 525286400, 2043),
    "silmont_mem": (9, 3781165056, 31719936, 97),
    "wedson_medium_128_inference": (98, 1763704832, 1703276544, 3840),
    "wedson_medium_128_training": (377, 7235174400, 6816891392, 19136),
    "yiyi_oom_snapshot": (176, 11844714496, 11840159744, 1),
}
"""Segments, reserved and allocated bytes, entries: the README of the shared traces."""


def path(name: str) -> Path:
    return shared_trace(f"memsnap/{name}.pickle")


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_reference(name: str) -> None:
    row = load(path(name)).rows("allocator")[0]
    assert (row["segments"], row["reserved_bytes"], row["allocated_bytes"], row["entries"]) == SIZES[name]
    assert row["active_bytes"] == SIZES[name][2]


@pytest.mark.parametrize("name", SIZES)
def test_what_a_segment_has_adds_up_to_its_size(name: str) -> None:
    profile = load(path(name))
    segments, blocks = profile.table("segments"), profile.table("blocks")
    assert (segments["live_bytes"] + segments["pending_bytes"] + segments["free_bytes"]).equals(segments["total_bytes"])
    assert blocks.groupby("segment")["bytes"].sum().tolist() == segments["total_bytes"].tolist()


@pytest.mark.parametrize("name", [name for name in SIZES if name not in ("silmont_mem", "yiyi_oom_snapshot")])
def test_the_model_places_every_recorded_allocation_where_torch_did_and_never_grows(name: str) -> None:
    made = reading(read(path(name)))
    start = sequence.beginning(made.allocations, made.segments, 0)
    outcome = replay(sequence.events(made.allocations, 0), recorded(made.contents.settings), start)
    placed = {key: int(made.allocations.address[key]) for key in outcome.placed}
    assert (outcome.grown_bytes, outcome.unknown_frees) == (0, 0)
    assert outcome.placed == placed
    assert (outcome.reserved_bytes, outcome.allocated_bytes) == SIZES[name][1:3]


def test_the_model_rebuilds_a_history_from_nothing_to_the_byte() -> None:
    made = reading(read(path("silmont_mem")))
    trace, grown = made.contents.trace, ACTIONS.index("segment_alloc")
    recorded_growth = np.cumsum(trace.bytes[trace.action == grown]).tolist()
    events = list(sequence.events(made.allocations, 0))
    settings = recorded(made.contents.settings)
    reached = [replay(events[: count + 1], settings).reserved_bytes for count in range(len(events))]
    assert list(dict.fromkeys(reached)) == recorded_growth
    assert reached[-1] == SIZES["silmont_mem"][1]


def test_a_training_step_is_told_apart_into_parameters_gradients_and_state() -> None:
    peak = load(path("wedson_medium_128_training")).table("memory_peak")
    held = peak.groupby("category", observed=True)[["bytes", "allocations"]].sum()
    assert held.loc["parameters", "allocations"] == held.loc["gradients", "allocations"] == 219
    state: Any = held.loc["optimizer state", "bytes"] / held.loc["parameters", "bytes"]
    assert 2.0 < state < 2.1  # two moments, and one that is being made anew
    assert held["bytes"].sum() == load(path("wedson_medium_128_training")).rows("allocator")[0]["peak_bytes"]


def test_activations_are_named_by_line_with_what_the_peak_were_without() -> None:
    profile = load(path("magma27_cs336"))
    first = profile.rows("memory_peak")[0]
    assert first["file"].endswith("cs336_basics/model.py") and first["line"] in (39, 532)
    assert (first["category"], first["bytes"], first["allocations"]) == ("activations", 2415919104, 24)
    assert first["without_bytes"] == profile.rows("allocator")[0]["peak_bytes"] - first["bytes"]


def test_an_old_snapshot_without_a_history_is_still_explained() -> None:
    profile = load(path("yiyi_oom_snapshot"))
    (row,) = profile.rows("memory_peak")
    assert (row["line"], row["function"], row["bytes"]) == (190, "allocate", 11840159744)
    assert not profile.measured("allocations") and "history" in profile.why_not("allocations")[0]
