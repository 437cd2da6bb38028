from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.errors import InputError
from gpudoctor.ingest import kineto, ops, trace
from gpudoctor.ingest.callers import Names
from tests.op_rows import op_rows

MARK = "gpudoctor::line#"


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 5, "traceEvents": events}))
    return path


def table(path: Path, events: list[dict[str, Any]], lines: list[list[Any]], sources: list[str]) -> list[dict[str, Any]]:
    decoded = kineto.read(write(path, events))
    return op_rows(decoded, [ops.Window(0, 0, 10_000_000)], Names(lines, dict.fromkeys(sources, "")))


def test_an_operator_gets_the_last_line_mark_before_it_and_its_caller(tmp_path: Path) -> None:
    rows = table(
        tmp_path / "t.json",
        [
            event("train.py(1): main", 0, 900, "python_function"),
            event(f"{MARK}0", 1, 0.1),
            event("aten::mul", 5, 10),
            event(f"{MARK}1", 20, 0.1),
            event("torch/nn/functional.py(9): linear", 21, 60, "python_function"),
            event("<built-in function linear>", 22, 58, "python_function"),
            event("aten::linear", 23, 50),
            event("aten::addmm", 30, 40),
        ],
        [["train.py", 4, "main"], ["train.py", 5, "main"]],
        ["train.py"],
    )
    found = {row["name"]: row for row in rows}
    assert (found["aten::mul"]["file"], found["aten::mul"]["line"]) == ("train.py", 4)
    assert found["aten::linear"]["line"] == 5
    assert found["aten::linear"]["owner"] == "user"  # functional.py only passes the call on
    assert found["aten::addmm"]["parent"] == found["aten::linear"]["op"]
    assert found["aten::linear"]["self_ns"] == 10_000
    assert found["aten::addmm"]["op_class"] == "gemm"


def test_without_marks_the_function_is_known_and_says_so(tmp_path: Path) -> None:
    rows = table(
        tmp_path / "t.json",
        [event("train.py(7): step", 0, 900, "python_function"), event("aten::mul", 5, 10)],
        [],
        ["proj/train.py"],
    )
    assert (rows[0]["file"], rows[0]["line"], rows[0]["precision"]) == ("proj/train.py", 7, "def")


def test_backward_operators_take_the_place_of_their_forward_operator(tmp_path: Path) -> None:
    rows = table(
        tmp_path / "t.json",
        [
            event(f"{MARK}0", 1, 0.1),
            event("aten::addmm", 5, 10, **{"Sequence number": 9, "Fwd thread id": 0}),
            event(f"{MARK}1", 20, 0.1),
            event("gpudoctor::backward", 30, 100),
            event("autograd::engine::evaluate_function: AddmmBackward0", 40, 50, **{"Sequence number": 9}),
            event("AddmmBackward0", 45, 40, **{"Sequence number": 9}),
            event("aten::mm", 50, 20),
        ],
        [["train.py", 4, "main"], ["train.py", 8, "main"]],
        ["train.py"],
    )
    mm = rows[-1]
    assert (mm["phase"], mm["line"], rows[mm["forward_op"]]["name"]) == ("backward", 4, "aten::addmm")


def test_phases_follow_their_ranges(tmp_path: Path) -> None:
    rows = table(
        tmp_path / "t.json",
        [
            event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10, "user_annotation"),
            event("aten::stack", 2, 3),
            event("aten::relu", 20, 3),
            event("gpudoctor::backward", 30, 10),
            event("Optimizer.step#SGD.step", 50, 10, "user_annotation"),
            event("aten::add_", 52, 3),
            event("aten::sum", 80, 3),
        ],
        [],
        [],
    )
    assert [(r["name"], r["phase"]) for r in rows if r["name"].startswith("aten")] == [
        ("aten::stack", "input"),
        ("aten::relu", "forward"),
        ("aten::add_", "optimizer"),
        ("aten::sum", "other"),
    ]


def test_an_optimizers_range_that_the_profilers_stop_ends_lasts_as_long_as_its_step(tmp_path: Path) -> None:
    decoded = kineto.read(
        write(
            tmp_path / "t.json",
            [
                event("ProfilerStep#4", 0, 100, "user_annotation"),
                event("Optimizer.step#SGD.step", 10, 40, "user_annotation"),
                event("ProfilerStep#5", 100, 100, "user_annotation"),
                event("Optimizer.step#SGD.step", 120, 260_000, "user_annotation"),
                event("aten::add_", 130, 20),
                event("aten::mul_", 195, 12),
                event("aten::copy_", 300, 50),
            ],
        )
    )
    rows = op_rows(decoded, [ops.Window(4, 0, 100_000), ops.Window(5, 100_000, 200_000)], Names([], {}))
    assert [(row["name"], row["step"], row["dur_ns"]) for row in rows] == [
        ("Optimizer.step#SGD.step", 4, 40_000),
        ("Optimizer.step#SGD.step", 5, 87_000),
        ("aten::add_", 5, 20_000),
        ("aten::mul_", 5, 12_000),
    ]
    assert [row["phase"] for row in rows] == ["optimizer"] * 4


@pytest.mark.parametrize(
    ("outer", "inner", "read"),
    [
        (None, "aten::item", True),
        ("aten::is_nonzero", "aten::item", False),  # counted once, at the outer one
        ("aten::one_hot", "aten::item", False),  # a range check of the CPU kernel
        ("aten::index", "aten::nonzero", True),  # a boolean mask: its size is data
        (None, "aten::mul", False),
    ],
)
def test_host_reads(tmp_path: Path, outer: str | None, inner: str, read: bool) -> None:
    events = [event(outer, 0, 100)] if outer else []
    rows = table(tmp_path / "t.json", [*events, event(inner, 10, 10)], [], [])
    assert rows[-1]["host_read"] is read


@pytest.mark.parametrize("method", ["cpu", "tolist"])
def test_methods_that_fetch_a_tensor_are_reads_though_a_cpu_runs_no_operator_for_them(
    tmp_path: Path, method: str
) -> None:
    rows = table(
        tmp_path / "t.json",
        [
            event("train.py(1): main", 0, 900, "python_function"),
            event(f"{MARK}0", 1, 0.1),
            event(f"<built-in method {method} of Tensor object at 0x7f>", 5, 10, "python_function"),
            event("<built-in method cpu of dict object at 0x7f>", 25, 10, "python_function"),
        ],
        [["train.py", 4, "main"]],
        ["train.py"],
    )
    assert [(row["name"], row["line"], row["owner"], row["host_read"]) for row in rows] == [
        (f"Tensor.{method}", 4, "user", True)
    ]


def test_a_range_that_python_opens_does_not_keep_the_function_that_opened_it(tmp_path: Path) -> None:
    rows = table(
        tmp_path / "t.json",
        [
            event("train.py(1): main", 0, 900, "python_function"),
            event("torch/_ops.py(9): __call__", 5, 10, "python_function"),
            event("my range", 10, 500, "user_annotation"),
            event("aten::item", 100, 10),
        ],
        [],
        ["train.py"],
    )
    assert (rows[-1]["name"], rows[-1]["owner"], rows[-1]["parent"]) == ("aten::item", "user", 0)


def test_threads_do_not_nest_into_each_other(tmp_path: Path) -> None:
    rows = table(tmp_path / "t.json", [event("aten::a", 0, 100, tid=1), event("aten::b", 10, 20, tid=2)], [], [])
    assert [row["parent"] for row in rows] == [None, None]


def test_a_gzip_trace_by_any_name_and_a_bare_list_are_read(tmp_path: Path) -> None:
    packed = tmp_path / "trace.bin"
    packed.write_bytes(gzip.compress(json.dumps([event("aten::mm", 1, 2)]).encode()))
    profile = trace.load(packed)
    assert list(profile.table("ops")["name"]) == ["aten::mm"]
    assert profile.facts["step_source"] == "window"


def test_device_activities_are_tied_to_their_operator_and_copies_say_their_direction(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [
            event("ProfilerStep#3", 0, 1000, "user_annotation"),
            event("aten::mm", 1, 5, **{"External id": 12}),
            event(
                "ampere_sgemm_128x64_tn",
                10,
                300,
                "kernel",
                **{"External id": 12, "device": 0, "stream": 7, "correlation": 4},
            ),
            event("aten::to", 390, 50),
            event("aten::copy_", 392, 40, **{"External id": 13}),
            event(
                "Memcpy HtoD (Pageable -> Device)",
                400,
                30,
                "gpu_memcpy",
                **{"External id": 13, "bytes": "4096", "device": 0, "stream": 7},
            ),
        ],
    )
    profile = trace.load(path)
    kernels = profile.table("kernels")
    assert list(kernels["kind"]) == ["kernel", "memcpy"]
    assert kernels["op"][0] == 0
    assert (kernels["kernel_class"][0], kernels["direction"][1], kernels["bytes"][1], bool(kernels["pageable"][1])) == (
        "gemm",
        "h2d",
        4096,
        True,
    )
    assert list(profile.table("steps")["step"]) == [3]
    assert list(profile.table("ops")["phase"]) == ["forward", "transfer", "transfer"]
    assert not profile.measured("batches")


def test_events_without_a_time_are_counted_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event("aten::mm", 1, 2), {"ph": "X", "cat": "cpu_op", "ts": "oops"}]}))
    profile = trace.load(path)
    assert len(profile.table("ops")) == 1
    assert profile.facts["notes"][0] == "1 event without a time left out"


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"{}", b'{"traceEvents": []}', b"\x1f\x8bbroken", b"[1, 2", b'"text"']
)
def test_what_is_no_trace_gives_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.json"):
        trace.load(path)


def test_an_optimizers_range_ends_a_step_and_is_none(tmp_path: Path) -> None:
    events = []
    for number in range(3):
        events += [
            event("aten::mm", 1000 * number, 300),
            event("Optimizer.step#SGD.step", 1000 * number + 500, 100, "user_annotation"),
        ]
    steps = trace.load(write(tmp_path / "t.json", events)).table("steps")
    assert set(steps["source"]) == {"optimizer"}
    assert list(steps["dur_ns"]) == [600_000, 1_000_000, 1_000_000]


def test_of_several_processes_in_one_file_one_is_judged_and_said(tmp_path: Path) -> None:
    events = [event("aten::mm", 10 * number, 5) for number in range(4)]
    other = [one | {"pid": 2} for one in events[:2]]
    profile = trace.load(write(tmp_path / "t.json", [*events, *other]))
    assert len(profile.table("ops")) == 4
    assert "2 processes are in this file: only the calls of one of them were judged" in profile.facts["notes"]


def test_steps_that_overlap_by_a_rounding_are_all_steps(tmp_path: Path) -> None:
    """Begin and end of a range are rounded apart: one step's end can lie a nanosecond behind the next one's begin."""
    steps = [("ProfilerStep#5", 0, 100.001), ("ProfilerStep#6", 100, 50.002), ("ProfilerStep#7", 150.001, 20)]
    events = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}
        for name, start, dur in steps
    ]
    events.append(
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 110, "dur": 5, "args": {}}
    )
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    found = trace.load(tmp_path / "trace.json").table("steps")
    assert found["step"].tolist() == [5, 6, 7]
    assert (found["start_ns"] + found["dur_ns"]).iloc[:-1].le(found["start_ns"].iloc[1:].reset_index(drop=True)).all()
