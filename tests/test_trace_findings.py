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
    assert made["GD402"].severity == "error"  # 394 of 838 ms are float32 convolutions
    assert made["GD302"].severity == "info"  # 19 ms of exposed copies in six steps
    assert "GD401" not in made  # no TF32 before Ampere


def test_collectives_of_a_ddp_step_on_mi300_are_exposed() -> None:
    made = found("tracelens/mi300__resnet_act_checkpoint.json.gz")
    assert set(made) == {"GD801"}
    assert made["GD801"].severity == "warning"  # one rank cannot tell sending from a wait that every step has
    assert str(made["GD801"].where) == "train_ddp.py:82"


def test_a_recommender_on_a100_reads_values_between_its_collectives() -> None:
    made = found("hta/trace_diff_control__control.json.gz")
    assert set(made) == {"GD201", "GD301", "GD303", "GD402", "GD801"}
    assert {finding.severity for finding in made.values()} == {"warning"}
    assert "_local_scalar_dense" in made["GD301"].message
    assert "TF32" in made["GD402"].message


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


def test_launch_bound_findings_of_a_bare_trace_say_that_they_are_observations() -> None:
    finding = found("hta/nccl_parser_config__nccl_data.json.gz")["GD202"]
    assert finding.severity == "warning"
    assert "an observation: no step without the profiler was seen" in finding.message
