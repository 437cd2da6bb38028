"""The critical path by owner, and as a graph."""

from __future__ import annotations

from typing import Any

from gpudoctor import profile as schema
from gpudoctor.critical_path import critical_path, path_graph
from gpudoctor.diagnosis import Location, PathShare
from gpudoctor.profile import Profile

LINE = {"file": "train.py", "line": 7}


def path(*stretches: dict[str, Any]) -> Profile:
    """Stretches behind each other, from 1000 ns on."""
    rows, now = [], 1000
    for position, stretch in enumerate(stretches):
        rows.append({"position": position, "step": 5, "start_ns": now, **stretch})
        now += stretch["dur_ns"]
    return Profile({"critical_path": schema.frame("critical_path", rows)})


def kernel(name: str, dur_ns: int, kernel_class: str | None = "gemm", **more: Any) -> dict[str, Any]:
    return {"kind": "device", "name": name, "dur_ns": dur_ns, "kernel_class": kernel_class, "stream": 7, **more}


def test_owners_are_the_largest_first_and_add_up_to_the_step() -> None:
    made = critical_path(
        path(
            {"kind": "host", "dur_ns": 10, "thread": 1},
            {"kind": "host", "name": "aten::mm", "dur_ns": 20, "thread": 1, **LINE},
            {"kind": "call", "name": "cudaLaunchKernel", "dur_ns": 5, "thread": 1, **LINE},
            {"kind": "latency", "name": "sgemm_a", "dur_ns": 2, "kernel_class": "gemm", "stream": 7, **LINE},
            kernel("sgemm_a", 100, **LINE),
            {"kind": "latency", "name": "add", "dur_ns": 3, "kernel_class": "pointwise", "stream": 7},
            kernel("sgemm_b", 50, **LINE),
            kernel("sgemm_b", 4, stream=8, **LINE),
            {"kind": "wait", "name": "cudaStreamSynchronize", "dur_ns": 6, "thread": 1, "file": "train.py", "line": 9},
            {"kind": "host", "dur_ns": 11, "thread": 1},
        )
    )
    assert made is not None
    assert (made.step, made.step_ns) == (5, 211)
    where = Location("train.py", 7)
    assert made.shares == (
        PathShare("device", "gemm", where, 7, 150, 150 / 211),
        PathShare("host", None, None, None, 21, 21 / 211),
        PathShare("host", "aten::mm", where, None, 20, 20 / 211),
        PathShare("wait", "cudaStreamSynchronize", Location("train.py", 9), None, 6, 6 / 211),
        PathShare("call", "cudaLaunchKernel", where, None, 5, 5 / 211),
        PathShare("latency", None, None, 7, 5, 5 / 211),
        PathShare("device", "gemm", where, 8, 4, 4 / 211),
    )
    assert sum(share.ns for share in made.shares) == made.step_ns


def test_work_without_a_class_keeps_its_name_and_stretches_without_time_own_nothing() -> None:
    made = critical_path(path(kernel("odd", 9, None), {"kind": "host", "dur_ns": 0}))
    assert made is not None
    assert [(share.name, share.ns) for share in made.shares] == [("odd", 9)]


def test_without_a_path_there_is_none() -> None:
    assert critical_path(Profile({})) is None
    assert critical_path(path()) is None
    assert critical_path(path({"kind": "host", "dur_ns": 0})) is None
    assert not path_graph(Profile({}))


def test_the_graph_is_the_path_in_the_order_of_time() -> None:
    graph = path_graph(path({"kind": "host", "dur_ns": 10, **LINE}, kernel("a", 5), kernel("b", 6)))
    assert list(graph.edges) == [(0, 1), (1, 2)]
    assert graph.nodes[1]["name"] == "a"
    assert graph.nodes[0] | {"file": "train.py"} == graph.nodes[0]
    assert [graph.nodes[place]["start_ns"] for place in graph] == [1000, 1010, 1015]
