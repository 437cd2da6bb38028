"""What the rules say about public traces: each figure here was checked against the events of the trace."""

from __future__ import annotations

from functools import cache

import pytest

from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis, Finding
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.ingest import open_path
from tests.shared_traces import shared_trace


@cache
def diagnosed(name: str) -> Diagnosis:
    return diagnose(open_path(shared_trace(name)), load_rules(), Config(preview=True))


def found(name: str) -> dict[str, Finding]:
    return {finding.rule: finding for finding in diagnosed(name).findings}


@pytest.mark.parametrize("version", ["1623143089861", "v3"])
def test_resnet50_without_loader_workers_waits_for_its_loader_above_all(version: str) -> None:
    top = diagnosed(f"tbplugin/resnet50_num_workers_0.{version}.pt.trace.json.gz").findings[0]
    assert top.rule == "GD601"
    assert top.saving is not None
    assert top.saving.share > 0.15
    assert "with 0 loader workers; the GPU idles" in top.message


@pytest.mark.parametrize("version", ["1623212756351", "v3"])
def test_resnet50_with_four_workers_does_not(version: str) -> None:
    name = f"tbplugin/resnet50_num_workers_4.{version}.pt.trace.json.gz"
    assert "GD601" not in found(name)
    assert "GD601" in {rule.rule for rule in diagnosed(name).passed}


def test_resnet50_on_a_v100_computes_in_float32_and_copies_from_pageable_memory() -> None:
    made = found("tbplugin/resnet50_num_workers_4.1623212756351.pt.trace.json.gz")
    # 394 of 838 ms are float32 convolutions, but the host holds the step, at least as long as it is profiled
    assert made["GD402"].severity == "info"
    assert made["GD402"].saving is not None
    assert made["GD402"].saving.ns_per_step < 1_500_000
    assert (made["GD402"].saving.high_ns or 0) > 8_000_000
    assert made["GD302"].severity == "info"  # 2.9 ms in the usual step; one in six waits 36 ms for the GPU
    assert "GD401" not in made  # no TF32 before Ampere
    assert made["GD402"].remedy is not None
    assert "dtype=torch.float16" in made["GD402"].remedy.text
    assert "bfloat16)`" not in made["GD402"].remedy.text
    assert "TF32" not in made["GD402"].remedy.text


def test_half_precision_is_a_warning_where_the_loader_keeps_the_gpu_idle() -> None:
    made = found("tbplugin/resnet50_num_workers_0.1623143089861.pt.trace.json.gz")
    half, loader = made["GD402"], made["GD601"]
    assert half.severity == "warning"
    assert "The GPU idles 44 % of the step" in half.message
    assert half.saving is not None and loader.saving is not None
    assert half.saving.share < 0.02  # as it is, the next batch is not there when the GPU is done
    assert 12_000_000 < (half.saving.adds_ns or 0) < 14_000_000  # once it is, the GPU is what the step waits for


def test_zeroed_gradients_are_priced_by_their_launches_in_a_range_where_only_profiled_steps_were_seen() -> None:
    made = found("tbplugin/resnet50_num_workers_4.1623212756351.pt.trace.json.gz")["GD505"]
    assert made.severity == "info"  # 966 fills of about 1 µs in six steps; the host took 39 ms to launch them
    assert made.saving is not None
    assert 4_000_000 < made.saving.ns_per_step < 4_500_000  # the host holds the step
    assert 2_000_000 < (made.saving.low_ns or 0) < 2_500_000  # which the profiler slows


def test_collectives_of_a_ddp_step_on_mi300_hold_the_step_and_cannot_be_hidden() -> None:
    made = found("tracelens/mi300__resnet_act_checkpoint.json.gz")
    assert set(made) == {"GD408", "GD801"}
    finding = made["GD801"]
    assert finding.severity == "warning"  # one rank cannot tell sending from a wait that every step has
    assert finding.saving is not None
    assert finding.saving.grade == "estimated"  # launches from before the recording: a replay would guess
    assert finding.where is None  # all-reduces come from hooks without a line; only 10 µs broadcasts have one
    assert finding.remedy is not None
    assert "collectives already run 83 % of the step" in finding.remedy.text
    assert "bfloat16" not in finding.remedy.text  # its gradients are bfloat16


def test_a_convolution_library_that_transposes_is_priced_by_its_transposes() -> None:
    made = found("tracelens/mi300__resnet_act_checkpoint.json.gz")["GD408"]
    assert made.severity == "warning"  # 747 kernels that three steps launched, 4.2 ms; half run behind the last
    assert made.saving is not None and 1_400_000 < made.saving.ns_per_step < 1_420_000


def test_a_recommender_on_a100_reads_values_between_its_collectives() -> None:
    made = found("hta/trace_diff_control__control.json.gz")
    assert set(made) == {"GD201", "GD301", "GD402", "GD407"}
    assert {rule for rule, finding in made.items() if finding.severity == "warning"} == {"GD301"}
    assert "_local_scalar_dense" in made["GD301"].message
    assert "TF32" in made["GD402"].message


def test_copies_made_ahead_on_a_stream_of_their_own_hold_nothing_up() -> None:
    """The recommender prefetches; kernels behind a copy that runs alone are launched 11 to 23 µs before they begin."""
    tables = open_path(shared_trace("hta/trace_diff_control__control.json.gz")).tables["kernels"]
    copies = tables[(tables["direction"] == "h2d") & tables["step"].notna()]
    assert copies["exposed_ns"].sum() == 15_984_000
    assert copies["held_ns"].sum() < 1_000_000


def test_collectives_of_a_launch_bound_step_cost_nothing() -> None:
    made = open_path(shared_trace("hta/nccl_parser_config__nccl_data.json.gz")).tables["collectives"]
    assert made["exposed_ns"].sum() > 39_000_000
    assert made["held_ns"].sum() < 400_000


@pytest.mark.parametrize("rule", ["GD201", "GD202", "GD801", "GD601"])
def test_one_profiled_step_is_too_few_to_judge_launches_collectives_and_loaders(rule: str) -> None:
    made = diagnosed("param/dlrm8__worker0_step_12.1694128201545.pt.trace.json.gz")
    assert rule in {missing.rule for missing in made.not_measured}


@pytest.mark.parametrize(
    "name",
    [
        "tracelens/b200__eager_trace.json.gz",
        "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
        "tracelens/inference_vllm_decode_full__graph_execution.json.gz",
        "tracelens/torch_compile_triton__trace.json.gz",
        "hta/large_integer_trace__rank-70.pt.trace.json.gz",
        "hta/call_stack__backward_thread.json",
    ],
)
def test_traces_without_a_provable_problem_have_no_finding(name: str) -> None:
    assert diagnosed(name).findings == ()


def test_launch_bound_findings_of_a_bare_trace_are_observations_without_a_price() -> None:
    finding = found("hta/nccl_parser_config__nccl_data.json.gz")["GD202"]
    assert (finding.severity, finding.saving) == ("info", None)
    assert "an observation without a price: a profiler slows launches" in finding.message


@pytest.mark.parametrize("version", ["1623143089861", "v3"])
@pytest.mark.parametrize("workers", [0, 4])
def test_a_resnet50_that_fills_its_gpu_is_not_launch_bound(workers: int, version: str) -> None:
    """A quarter of the launches find the GPU idle under the profiler: those at the begin of each step."""
    version = "1623212756351" if workers and version != "v3" else version
    made = diagnosed(f"tbplugin/resnet50_num_workers_{workers}.{version}.pt.trace.json.gz")
    assert "GD202" in {rule.rule for rule in made.passed}


def test_steps_of_a_host_that_runs_ahead_have_equal_work() -> None:
    """The first profiled step lasts 35 ms on the host, as its kernels run in the next one; from the third on 96 ms."""
    name = "hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
    steps = open_path(shared_trace(name)).tables["steps"]
    assert steps["dur_ns"].min() < 0.4 * steps["dur_ns"].max()
    assert steps["device_ns"].between(94_000_000, 95_000_000).all()
