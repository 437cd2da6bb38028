from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.ingest import what_if
from gpudoctor.ingest.watch import WatchLog
from gpudoctor.recorder.what_if_result import FILE, TRACE, Result, interrupted
from gpudoctor.userfiles import UserFiles

STOPPED = {"stopped_by_gpudoctor": True}
BREAK = """Graph Break Reason: Call to `print`

User code traceback:
  File "/proj/train.py", line 21, in <module>
    opt.step()
  File "/venv/lib/python3.11/site-packages/torch/optim/optimizer.py", line 538, in wrapper
    post_hook(self, args, kwargs)
  File "/opt/gpudoctor/recorder/what_if.py", line 191, in _explain
    found = dynamo.explain(module)(*args, **kwargs)
"""
INSIDE = '  File "/proj/model.py", line 7, in forward\n    print(x)\n'
CODE = """
def call(args):
    extern_kernels.addmm(arg0, arg1, out=buf0)
    buf1 = extern_kernels.convolution(buf0, arg2)
    cpp_fused_relu_0(buf0, buf2)
    triton_poi_fused_add_1.run(buf2, 4, stream=stream0)
    # cpp_fused_relu_0(buf0) is not called here
    buf3 = torch.ops.aten.sort.default(buf2)
"""


def record(metadata: dict[str, Any], payload: str) -> str:
    lines = "".join(f"\t{line}\n" for line in payload.splitlines())
    return f"V1130 21:00:00.000000 1 torch/x.py:1] {json.dumps(metadata)}\n{lines}"


def broken(payload: str) -> str:
    ids = {"frame_id": 0, "frame_compile_id": 0, "has_payload": "x"}
    return record({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **ids}, payload)


def read(
    folder: Path, run: dict[str, Any] | None = STOPPED, **options: Any
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    (folder / "options.json").write_text(json.dumps({"what_if": "explain", **options}))
    tables: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    files = UserFiles("/proj", ["/venv/", "/opt/"], here=False)
    what_if.add(folder, folder / "rank0", files, run, WatchLog(), tables, missing, {})
    return tables, missing


@pytest.fixture
def rank(tmp_path: Path) -> Path:
    folder = tmp_path / "rank0"
    folder.mkdir()
    return folder


def test_breaks_belong_to_the_models_lines_and_a_librarys_to_the_line_that_calls_the_model(rank: Path) -> None:
    Result(module="Net", file="train.py", line=12, function="step", graph_ops=[3, 0, 2]).save(rank)
    (rank / TRACE).write_text(broken(BREAK + INSIDE) * 2 + broken(BREAK))
    tables, missing = read(rank.parent)
    assert not missing
    assert [(row["file"], row["line"], row["function"]) for row in tables["what_if_breaks"]] == [
        ("model.py", 7, "forward"),
        ("train.py", 12, "step"),
    ]
    (row,) = tables["what_if"]
    assert (row["graphs"], row["ops"], row["breaks"], row.get("kernels")) == (2, 5, 2, None)
    assert [graph["ops"] for graph in tables["what_if_graphs"]] == [3, 0, 2]


def test_kernels_and_library_calls_are_counted_in_inductors_code(rank: Path) -> None:
    Result(module="Net", graph_ops=[5], eager_kernels=7).save(rank)
    (rank / TRACE).write_text(record({"inductor_output_code": {"filename": "x"}, "has_payload": "x"}, CODE))
    ((row,), _) = read(rank.parent)[0]["what_if"], None
    assert (row["eager_kernels"], row["kernels"], row["extern_calls"]) == (7, 2, 3)


def test_no_graph_at_all_is_not_measured_and_says_the_first_reasons(rank: Path) -> None:
    Result(module="Net", file="train.py", line=12).save(rank)
    (rank / TRACE).write_text(broken(BREAK + INSIDE))
    _, missing = read(rank.parent)
    assert missing["what_if"] == "torch.compile would make no graph of Net: model.py:7 Call to `print`"


@pytest.mark.parametrize(
    ("run", "options", "expected"),
    [
        (STOPPED, {}, "no result of it"),
        (None, {}, "killed"),
        ({"stopped_by_gpudoctor": False}, {}, "ended by itself"),
        (STOPPED, {"run_to_end": True}, "--run-to-end"),
        (STOPPED, {"stop": "raise"}, "--stop raise"),
        (STOPPED, {"what_if": "none"}, "--no-what-if"),
    ],
)
def test_the_reason_is_said(run: dict[str, Any] | None, options: dict[str, Any], expected: str, rank: Path) -> None:
    tables, missing = read(rank.parent, run, **options)
    assert not tables
    assert all(expected in missing[name] for name in what_if.TABLES)


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', '{"running": tr', "\x00"])
def test_a_damaged_result_is_as_good_as_none(text: str, rank: Path) -> None:
    (rank / FILE).write_text(text)
    assert "damaged" in read(rank.parent)[1]["what_if"]
    assert not interrupted(rank.parent)
