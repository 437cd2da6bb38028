"""The replay of steps that real GPUs ran: unchanged, with exchanged durations, with a fix applied."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from gpudoctor.analysis.simulate import replay, targets
from gpudoctor.analysis.simulate.edits import weights
from gpudoctor.analysis.simulate.price import Simulation, simulation
from gpudoctor.ingest import trace
from gpudoctor.profile import Profile
from tests.analysis.step_swaps import swaps
from tests.shared_traces import shared_trace

RESNET = "tbplugin/resnet50_num_workers_{}.pt.trace.json.gz"
TRAINING = (
    *(RESNET.format(name) for name in ("0.1623143089861", "0.v3", "4.1623212756351", "4.v3")),
    "hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "hta/nccl_parser_config__nccl_data.json.gz",
    "hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta/trace_diff_control__control.json.gz",
    *(
        f"param/dlrm8__worker{rank}_step_12.{stamp}.pt.trace.json.gz"
        for rank, stamp in enumerate(
            (
                "1694128201545", "1694128201556", "1694128201554", "1694128201557",
                "1694128201547", "1694128201549", "1694128201553", "1694128201553",
            )
        )
    ),
)  # fmt: skip


@cache
def profile_of(name: str) -> Profile:
    return trace.load(shared_trace(name))


@cache
def played(name: str) -> Simulation:
    made = simulation(profile_of(name))
    assert made is not None
    return made


@pytest.mark.parametrize("name", TRAINING)
def test_unchanged_and_with_the_traces_constants_every_step_takes_what_it_took(name: str) -> None:
    made = played(name)
    assert made.refused is None
    assert made.opaque <= 0.1
    assert made.errors.max() <= 0.02
    assert np.median(made.errors) <= 0.005
    assert made.anchored == pytest.approx(made.measured, rel=1e-6)


def test_over_all_traces_the_median_error_is_below_a_thousandth() -> None:
    assert np.median(np.concatenate([played(name).errors for name in TRAINING])) <= 0.001


@pytest.mark.parametrize("name", [RESNET.format("0.1623143089861"), RESNET.format("4.1623212756351"), TRAINING[5]])
def test_a_step_with_anothers_durations_takes_what_the_other_took(name: str) -> None:
    found = swaps(played(name).graph)
    assert len(found) >= 2
    assert np.median([swap.naive for swap in found]) > 0.02  # else there would be nothing to predict
    assert np.median([swap.error for swap in found]) <= 0.005


@pytest.mark.parametrize(("slow", "fast"), [("0.1623143089861", "4.1623212756351"), ("0.v3", "4.v3")])
def test_without_the_loaders_wait_a_step_is_predicted_as_with_four_workers(slow: str, fast: str) -> None:
    made = played(RESNET.format(slow))
    edit = targets.edit_of(profile_of(RESNET.format(slow)), made.graph, "drop", "loaders", [0])
    assert edit is not None
    predicted = np.median(replay.step_times(made.graph, made.player.times(*weights(made.graph, edit))))
    real = np.median(played(RESNET.format(fast)).measured)
    assert predicted == pytest.approx(real, rel=0.15)
    assert predicted <= real  # workers take cores from the host: a price is an upper bound


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("tracelens/inference_sglang_decode__sglang_Qwen3-8B_decode.json.gz", 0.9),
        ("tracelens/mi300__resnet_act_checkpoint.json.gz", 0.2),  # 968 launches from before the recording, and pauses
    ],
)
def test_where_launches_are_missing_nothing_is_priced(name: str, least: float) -> None:
    made = simulation(profile_of(name))
    assert made is not None
    assert made.opaque > least
    assert "of the critical path" in str(made.refused)
