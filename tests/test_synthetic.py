"""The synthetic machine keeps a GPU's rules, writes what Kineto writes; gpudoctor reads back what really happened."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pandas as pd
import pytest

from gpudoctor.ingest import open_path
from gpudoctor.profile import Profile
from tests.synthetic import Run, Torch, bare, recording, trace
from tests.synthetic.programs import mlp, small


def line_of(module: Any, text: str) -> int:
    """Number of the first line of a program with a text."""
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


@cache
def traced(whole_us: bool = False) -> Run:
    return trace(small.train, Path(mkdtemp()) / "trace.json", whole_us=whole_us)


@cache
def watched() -> Run:
    return recording(small.train, Path(mkdtemp()) / "recording")


@cache
def profile(run: Run) -> Profile:
    assert run.path is not None
    return open_path(run.path)


def in_profile(run: Run) -> list[Any]:
    return [step for step in run.steps if step.label != "bare"]


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [small.train, mlp.healthy])
def test_activities_of_a_stream_run_one_after_the_other_in_the_order_of_their_launches(program: Any) -> None:
    run = bare(program)
    lanes = defaultdict(list)
    for activity in run.activities:
        lanes[activity.stream].append(activity)
    for lane in lanes.values():
        assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(lane))
        assert [a.correlation for a in lane] == sorted(a.correlation for a in lane)


@pytest.mark.parametrize("program", [small.train, mlp.healthy])
def test_an_activity_begins_after_its_call_began(program: Any) -> None:
    run = bare(program)
    begun = {call.correlation: call.start_ns for call in run.calls}
    assert all(activity.start_ns > begun[activity.correlation] for activity in run.activities)


@pytest.mark.parametrize("program", [small.train, mlp.healthy])
def test_a_synchronisation_returns_when_everything_launched_before_it_is_done(program: Any) -> None:
    run = bare(program)
    waits = [call for call in run.calls if "Synchronize" in call.name]
    assert len(waits) >= len(run.steps)
    for call in waits:
        before = [a.end_ns for a in run.activities if a.correlation < call.correlation]
        assert call.end_ns >= max(before)
        assert call.waited_ns == 0 or call.end_ns - max(before) < 20_000


def test_calls_of_a_thread_do_not_overlap() -> None:
    calls = sorted(bare(small.train).calls, key=lambda call: call.start_ns)
    assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(calls))


def test_a_host_without_waits_runs_ahead_until_the_queue_is_full() -> None:
    def without_waits(torch: Torch) -> None:
        x = mlp.Tensor((4096, 4096))
        for _ in torch.DataLoader([((1,), "float")]):
            for _ in range(200):
                torch.linear(x, x)

    run = bare(without_waits, steps=14)
    outstanding = [
        sum(a.correlation <= call.correlation and a.end_ns > call.start_ns for a in run.activities)
        for call in run.calls[::97]
    ]
    assert 1_000 <= max(outstanding) <= 1_023
    assert run.calls[-1].waited_ns > 100_000


def test_the_same_seed_gives_the_same_trace_and_another_one_another(tmp_path: Path) -> None:
    texts = [trace(small.train, tmp_path / f"{n}.json", seed=n // 2).path.read_text() for n in range(3)]  # type: ignore[union-attr]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_profiler_makes_a_launch_bound_step_longer_and_a_gpu_bound_one_hardly() -> None:
    run = watched()
    assert 1.1 * run.step_ns() < run.step_ns("light") < run.step_ns("detail")


# -- what is written -------------------------------------------------------------------------------------------------


def events(run: Run) -> list[dict[str, Any]]:
    assert run.path is not None
    return json.loads(run.path.read_text(), parse_float=Decimal)["traceEvents"]


def test_calls_nest_in_operators_and_operators_in_each_other() -> None:
    spans = [e for e in events(traced()) if e.get("cat") in ("cpu_op", "user_annotation", "cuda_runtime")]
    for tid in {e["tid"] for e in spans}:
        around: list[tuple[Decimal, Decimal]] = []
        rows = [(e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == tid]
        for start, end in sorted(rows, key=lambda row: (row[0], -row[1])):
            while around and around[-1][1] <= start:
                around.pop()
            assert not around or end <= around[-1][1]
            around.append((start, end))


def test_python_functions_form_a_tree() -> None:
    python = {e["args"]["Python id"]: e for e in events(traced()) if e.get("cat") == "python_function"}
    assert f"small.py({line_of(small, 'def forward')}): forward" in {e["name"] for e in python.values()}
    for event in python.values():
        parent = python.get(event["args"]["Python parent id"])
        if parent is not None:
            assert parent["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= parent["ts"] + parent["dur"]


def test_every_activity_has_its_arrow_and_its_operator() -> None:
    rows = events(traced())
    arrows = Counter((e["ph"], e["id"]) for e in rows if e.get("cat") == "ac2g")
    external = {e["args"]["External id"] for e in rows if e.get("cat") == "cpu_op"}
    for event in rows:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            assert arrows["s", event["args"]["correlation"]] == arrows["f", event["args"]["correlation"]] == 1
            assert event["args"]["External id"] in external


def test_forward_and_backward_are_tied() -> None:
    rows = [e for e in events(traced()) if e.get("cat") == "fwdbwd"]
    assert len(rows) == 2 * 3 * (2 * small.LAYERS + 1)
    assert {e["tid"] for e in rows if e["ph"] == "s"} != {e["tid"] for e in rows if e["ph"] == "f"}


def test_whole_microseconds_keep_order_and_nesting() -> None:
    rows = [e for e in events(traced(whole_us=True)) if e.get("ph") == "X"]
    assert all(isinstance(e["ts"], int) and isinstance(e["dur"], int) for e in rows)
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in rows if e.get("cat") == "kernel")
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(kernels))


# -- what is read back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole_us", [False, True])
def test_steps_are_read_as_they_were(whole_us: bool) -> None:
    run = traced(whole_us)
    steps = profile(run).tables["steps"]
    near = 2_000 if whole_us else 2
    for row, step in zip(steps.itertuples(), in_profile(run), strict=True):
        assert row.step == step.number
        assert row.dur_ns == pytest.approx(step.end_ns - step.start_ns, abs=near)


@pytest.mark.parametrize("whole_us", [False, True])
def test_kernels_copies_and_their_calls_are_read_as_they_were(whole_us: bool) -> None:
    run = traced(whole_us)
    kernels = profile(run).tables["kernels"]
    first = in_profile(run)[0].start_ns
    mine = [a for a in run.activities if a.start_ns >= first]
    assert kernels["name"].tolist() == [a.name for a in mine]
    assert kernels["kind"].tolist() == [a.kind for a in mine]
    wanted = pd.Series([a.end_ns - a.start_ns for a in mine])
    assert (kernels["dur_ns"] - wanted).abs().max() <= (1_000 if whole_us else 0)
    calls = profile(run).tables["runtime_calls"].set_index("call")["correlation"]
    assert calls.loc[kernels["call"]].tolist() == [a.correlation for a in mine]


def test_waits_are_read_as_they_were() -> None:
    run = traced()
    calls = profile(run).tables["runtime_calls"]
    read = calls[(calls["kind"] == "sync") & calls["step"].notna()]
    numbers = {step.number for step in in_profile(run)}
    real = [c for c in run.calls if "Synchronize" in c.name and c.step in numbers]
    assert read["name"].tolist() == [c.name for c in real][: len(read)]
    assert read["dur_ns"].tolist() == [c.end_ns - c.start_ns for c in real][: len(read)]


def test_a_trace_tells_the_function_of_each_operator() -> None:
    ops = profile(traced()).tables["ops"]
    found = ops[ops["name"] == "aten::item"]
    assert set(found["line"]) == {line_of(small, "def report")}
    assert set(ops[ops["name"] == "aten::addmm"]["line"]) | set(ops[ops["name"] == "aten::mm"]["line"]) == {
        line_of(small, "def forward")
    }  # those of the backward pass belong to the forward


def test_a_recording_tells_the_line_of_each_operator() -> None:
    ops = profile(watched()).tables["ops"]
    ops = ops[ops["observation"] == "detail"]
    assert set(ops[ops["name"] == "aten::item"]["line"]) == {line_of(small, "torch.item")}
    assert set(ops[ops["name"] == "aten::mm"]["line"]) == {line_of(small, "x = torch.linear")}
    assert set(ops[ops["name"] == "Optimizer.step#SGD.step"]["line"]) == {line_of(small, "optimizer.step()")}
    paths = set(ops[ops["name"] == "aten::mm"]["module_path"])
    assert paths == {f"layers.{n}" for n in range(small.LAYERS)}


def test_a_recording_tells_how_long_steps_took() -> None:
    run = watched()
    facts = profile(run).facts
    assert facts["step_ns"] == pytest.approx(run.step_ns(), rel=0.05)
    assert facts["profiled_step_ns"] == pytest.approx(run.step_ns("light"), rel=0.05)


def test_a_recording_tells_the_loader_and_its_waits() -> None:
    loaders, batches = (profile(watched()).tables[name] for name in ("loaders", "batches"))
    assert loaders["line"].tolist() == [line_of(small, "torch.DataLoader")]
    assert loaders["for_line"].tolist() == [line_of(small, "for x, y in loader")]
    assert batches["wait_ns"].median() == pytest.approx(300_000, rel=0.1)


def test_the_budget_of_a_step_adds_up_and_knows_its_owners() -> None:
    budget = profile(traced()).tables["step_budget"]
    steps = profile(traced()).tables["steps"].set_index("step")["dur_ns"]
    assert (budget.groupby("step")["dur_ns"].sum() == steps).all()
    owners = budget.groupby("owner")["dur_ns"].median()
    assert owners["input"] > 200_000
    assert owners["launch"] > owners["compute"]
