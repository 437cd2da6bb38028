from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.analysis.device import derive
from gpudoctor.ingest import trace
from gpudoctor.profile import empty, frame
from tests.analysis.timelines import ENGINE, MAIN, US, Timeline
from tests.shared_traces import FOLDER, shared_trace

REFERENCE = FOLDER / "reference.json"
TRACES = sorted(json.loads(REFERENCE.read_text())) if REFERENCE.exists() else [REFERENCE.name]


def test_a_busy_device_has_no_gaps() -> None:
    line = Timeline(100)
    line.kernel(-10, 120, line.call("cudaLaunchKernel", -20, -16))
    assert line.budget() == {"compute": 100}
    assert line.gaps() == []


def test_a_late_launch_is_explained_by_what_its_thread_did_and_by_its_latency() -> None:
    line = Timeline(200)
    line.launch(-10, -5, 50)
    op = line.op("aten::add", 80, 110)
    line.launch(100, 108, 200, op=op)
    line.op("aten::mul", 0, 40)
    assert line.gaps() == [
        (50, 80, "python", "after aten::mul, before aten::add"),
        (80, 100, "launch", "aten::add"),
        (100, 108, "launch", "cudaLaunchKernel"),
    ]


def test_waiting_for_a_batch_is_input_and_so_is_what_it_leaves_behind() -> None:
    line = Timeline(400)
    line.op("aten::relu", -60, -40)
    line.launch(-50, -45, 100)
    line.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 220)
    line.op("aten::conv2d", 240, 300)
    line.launch(260, 265, 400)
    # the device was busy during 80 µs of the wait, until 220: so much of the idle time behind it is the wait's too
    assert line.gaps() == [(100, 265, "input", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")]


def test_a_wait_owns_no_more_idle_time_than_the_device_was_busy_during_it() -> None:
    line = Timeline(400)
    line.op("aten::relu", -60, -40)
    line.launch(-50, -45, 30)
    line.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 60)
    line.op("aten::conv2d", 100, 300)
    line.launch(260, 265, 400)
    assert line.budget() == {"compute": 165, "input": 40, "python": 30, "launch": 165}


def test_idle_time_behind_a_synchronisation_is_the_synchronisation() -> None:
    line = Timeline(400)
    line.launch(0, 5, 200)
    op = line.op("aten::_local_scalar_dense", 10, 205)
    line.call("cudaStreamSynchronize", 20, 205, op=op)
    add = line.op("aten::add", 230, 260)
    line.launch(240, 246, 400, op=add)
    rows = line.derive()["gaps"]
    assert line.gaps()[1:] == [(200, 246, "sync", "cudaStreamSynchronize")]
    assert rows["op"].tolist()[1:] == [op]
    assert rows["call"].tolist()[1:] == [1]


def test_a_host_that_is_ahead_again_has_got_over_its_wait() -> None:
    line = Timeline(1000)
    line.launch(0, 5, 200)
    line.call("cudaStreamSynchronize", 20, 205)
    first = line.op("aten::add", 206, 250)
    line.launch(210, 215, 500, op=first)
    line.launch(220, 500, 600, op=first)  # had waited in the queue for 276 µs
    late = line.op("aten::mul", 620, 660)
    line.launch(640, 646, 1000, op=late)
    assert [gap[2:] for gap in line.gaps() if gap[0] >= 600] == [
        ("python", "after aten::add, before aten::mul"),
        ("launch", "aten::mul"),
        ("launch", "cudaLaunchKernel"),
    ]


def test_a_call_into_the_allocator_is_memory() -> None:
    line = Timeline(300)
    line.launch(-10, -5, 20)
    op = line.op("aten::empty", 10, 200)
    line.call("cudaMalloc", 20, 180, op=op)
    line.launch(190, 195, 300, op=op)
    assert line.budget() == {"compute": 125, "memory": 160, "launch": 15}


def test_the_optimizer_owns_its_launches_and_a_wait_inside_keeps_its_own() -> None:
    line = Timeline(300)
    line.launch(-10, -5, 20)
    step = line.op("Optimizer.step#SGD.step", 20, 290)
    add = line.op("aten::add_", 40, 100, parent=step)
    line.launch(60, 66, 70, op=add)
    line.call("cudaStreamSynchronize", 110, 160, op=step)
    line.launch(200, 206, 300, op=step)
    assert line.budget() == {"compute": 118, "optimizer": 132, "sync": 50}


def test_while_the_main_thread_waits_the_autograd_engine_explains_and_the_other_way_round() -> None:
    line = Timeline(400)
    line.op("aten::mse_loss", -20, 20)
    line.launch(-10, -5, 40)
    node = line.op("autograd::engine::evaluate_function: MulBackward0", 100, 180, ENGINE)
    line.launch(150, 155, 200, ENGINE, node)
    line.op("aten::sum", 240, 300)
    line.launch(280, 285, 400)
    assert line.gaps() == [
        (40, 100, "python", "after aten::mse_loss, before autograd::engine::evaluate_function: MulBackward0"),
        (100, 150, "launch", "autograd::engine::evaluate_function: MulBackward0"),
        (150, 155, "launch", "cudaLaunchKernel"),
        (200, 240, "python", "after autograd::engine::evaluate_function: MulBackward0, before aten::sum"),
        (240, 280, "launch", "aten::sum"),
        (280, 285, "launch", "cudaLaunchKernel"),
    ]


def test_a_thread_that_only_polls_explains_nothing() -> None:
    line = Timeline(100)
    watchdog = 9
    line.launch(-10, -5, 10)
    line.call("cudaStreamSynchronize", 0, 100, watchdog)
    line.op("aten::add", 50, 70)
    line.launch(60, 66, 100)
    assert line.budget() == {"compute": 44, "unknown": 40, "launch": 16}


def test_work_that_was_launched_in_time_is_queued() -> None:
    line = Timeline(300)
    line.launch(-100, 0, 100)
    line.launch(-90, 103, 300)
    assert line.gaps() == [(100, 103, "queued", "cudaLaunchKernel")]


def test_kernels_of_a_graph_share_its_launch() -> None:
    line = Timeline(300)
    graph = line.call("cudaGraphLaunch", 10, 40)
    line.kernel(50, 100, graph, graph=True)
    line.kernel(110, 200, graph, graph=True)
    line.kernel(205, 300, graph, graph=True)
    assert line.gaps()[1:] == [
        (10, 50, "launch", "cudaGraphLaunch"),
        (100, 110, "queued", "cudaGraphLaunch"),
        (200, 205, "queued", "cudaGraphLaunch"),
    ]


def test_without_a_recorded_launch_the_neighbours_thread_stands_in() -> None:
    line = Timeline(200)
    line.launch(-10, -5, 50)
    line.op("aten::add", 40, 120)
    line.kernel(100, 200)
    assert line.gaps() == [(50, 100, "launch", "aten::add")]


def test_a_device_without_host_events_is_idle_for_unknown_reasons() -> None:
    line = Timeline(100)
    line.kernel(40, 60)
    assert line.budget() == {"compute": 20, "unknown": 80}


def test_copies_and_communication_own_what_nothing_hides() -> None:
    line = Timeline(100)
    line.kernel(0, 40)
    line.kernel(20, 70, stream=20, kernel_class="communication")
    line.kernel(60, 90, stream=21, kind="memcpy", kernel_class="copy")
    line.kernel(90, 100)
    assert line.budget() == {"compute": 50, "communication": 30, "copies": 20}


def test_a_gap_over_a_steps_edge_is_cut_there() -> None:
    line = Timeline(100, steps=2)
    line.launch(-10, -5, 60)
    line.op("aten::add", 50, 150)
    line.launch(140, 145, 200)
    assert line.budget(0) == {"compute": 60, "launch": 40}
    assert line.budget(1) == {"compute": 55, "launch": 45}


def test_steps_without_a_profiler_have_no_budget() -> None:
    line = Timeline(100, steps=2)
    line.kernel(10, 20)
    line.steps[1]["observation"] = "bare"
    line.kernel(110, 120)
    assert line.derive()["step_budget"]["step"].unique().tolist() == [0]


def test_exposed_time_of_kernels_and_their_collectives() -> None:
    line = Timeline(100)
    line.kernel(0, 40)
    line.kernel(20, 70, stream=20, kernel_class="communication")
    tables = {"steps": frame("steps", line.steps), "kernels": frame("kernels", line.kernels)}
    made = derive(tables | {"collectives": frame("collectives", [{"collective": 0, "kernel": 1}])})
    assert made["kernels"]["exposed_ns"].fillna(-1).tolist() == [-1, 30 * US]
    assert made["collectives"]["exposed_ns"].tolist() == [30 * US]


def test_nothing_is_derived_of_nothing_and_only_costs_of_operators_alone() -> None:
    assert derive({}) == {}
    assert derive({"steps": empty("steps"), "kernels": empty("kernels")}) == {}
    line = Timeline(100)
    line.op("aten::add", 0, 10)
    assert list(line.derive()) == ["op_costs"]


def test_kernels_outside_all_steps_leave_empty_tables() -> None:
    line = Timeline(100)
    line.kernel(500, 600)
    made = line.derive()
    assert len(made["step_budget"]) == len(made["gaps"]) == 0


events = st.lists(
    st.tuples(st.sampled_from("klsi"), st.integers(-50, 350), st.integers(0, 80), st.integers(1, 2)), max_size=15
)


@given(events, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_shares_add_up_on_any_timeline(rows: list[tuple[str, int, int, int]], steps: int) -> None:
    line = Timeline(100, steps)
    for kind, start, length, thread in rows:
        if kind == "k":
            line.kernel(start, start + length, stream=thread)
        elif kind == "l":
            line.launch(start, start + 10, start + 10 + length, thread)
        elif kind == "s":
            line.call("cudaStreamSynchronize", start, start + length, thread)
        else:
            line.op("enumerate(DataLoader)#x.__next__" if length > 40 else "aten::add", start, start + length, MAIN)
    if not line.kernels:
        return
    made = line.derive()
    check_exact(made, line.steps)


def check_exact(made: dict[str, pd.DataFrame], steps: list[dict[str, Any]]) -> None:
    """Shares sum to the step, gaps are disjoint, lie in their step, and sum to the idle shares."""
    length = {row["step"]: row["dur_ns"] for row in steps}
    begin = {row["step"]: row["start_ns"] for row in steps}
    budget, gaps = made["step_budget"], made["gaps"]
    for (step, _), total in budget.groupby(["step", "device"])["dur_ns"].sum().items():
        assert total == length[step]
    assert (budget["dur_ns"] >= 0).all()
    idle = budget[~budget["owner"].isin(["compute", "communication", "copies"])]
    assert int(idle["dur_ns"].sum()) == int(gaps["dur_ns"].sum())
    assert (gaps["dur_ns"] > 0).all()
    assert (gaps["start_ns"] >= gaps["step"].map(begin)).all()
    end = gaps["start_ns"] + gaps["dur_ns"]
    assert (end <= gaps["step"].map(begin) + gaps["step"].map(length)).all()
    for _, rows in gaps.groupby("device"):
        assert (rows["start_ns"].to_numpy()[1:] >= end[rows.index].to_numpy()[:-1]).all()
    assert not gaps.loc[gaps["owner"] != "unknown", "evidence"].isna().any()


@pytest.mark.parametrize("name", TRACES)
def test_shares_of_real_steps_add_up_and_each_gap_has_its_evidence(name: str) -> None:
    profile = trace.load(shared_trace(name))
    steps = profile.table("steps").to_dict("records")
    check_exact(derive(profile.tables), steps)


TRAINING = (
    "hta/nccl_parser_config__nccl_data.json.gz",
    "hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta/trace_diff_control__control.json.gz",
    "param/dlrm8__worker0_step_12.1694128201545.pt.trace.json.gz",
    "param/dlrm8__worker7_step_12.1694128201553.pt.trace.json.gz",
    "tbplugin/resnet50_num_workers_0.1623143089861.pt.trace.json.gz",
    "tbplugin/resnet50_num_workers_0.v3.pt.trace.json.gz",
    "tbplugin/resnet50_num_workers_4.1623212756351.pt.trace.json.gz",
    "tbplugin/resnet50_num_workers_4.v3.pt.trace.json.gz",
    "tracelens/b200__eager_trace.json.gz",
    "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/mi300__resnet_act_checkpoint.json.gz",
)


@pytest.mark.parametrize("name", TRAINING)
def test_less_than_a_tenth_of_a_real_step_is_unknown(name: str) -> None:
    budget = derive(trace.load(shared_trace(name)).tables)["step_budget"]
    unknown = int(budget.loc[budget["owner"] == "unknown", "dur_ns"].sum())
    assert unknown < 0.1 * int(budget["dur_ns"].sum())


@pytest.mark.parametrize("version", ["1623143089861", "v3"])
def test_loading_in_the_main_process_owns_the_idle_time_of_resnet50(version: str) -> None:
    budget = derive(trace.load(shared_trace(f"tbplugin/resnet50_num_workers_0.{version}.pt.trace.json.gz")).tables)
    shares = budget["step_budget"].groupby("owner", observed=True)["dur_ns"].sum()
    idle = shares.drop(["compute", "communication", "copies"])
    assert idle.idxmax() == "input"
    assert shares["input"] > 0.2 * shares.sum()
