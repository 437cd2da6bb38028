"""Several traces: which rank is which, each diagnosed by itself, and a broken one is never passed over."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpudoctor.cli import app
from gpudoctor.errors import InputError
from gpudoctor.ingest.ranks import assigned, find, named_rank
from tests.e2e.conftest import gpudoctor


def trace(path: Path, step_us: float, rank: int | None = None) -> Path:
    """Writes a trace of three steps, gzip when its name says so."""
    events: list[dict[str, Any]] = []
    for number in range(3):
        at = number * step_us
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**common, "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": step_us})
        events.append({**common, "cat": "cpu_op", "name": "aten::mm", "ts": at + 1, "dur": step_us / 2})
    whole: dict[str, Any] = {"traceEvents": events}
    if rank is not None:
        whole["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 8}
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(whole).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def analyze(*words: object) -> Any:
    return CliRunner().invoke(app, ["analyze", *map(str, words)], standalone_mode=False)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("trace_rank_0.json", 0),
        ("worker3.json", 3),
        ("dlrm8__worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("RANK12.json", 12),
        ("gpu1.json", 1),
        ("rank3/trace.json", 3),
        ("rank3/worker5.json", 5),
        ("host_12345.1623143089861.pt.trace.json", None),
        ("trace.json", None),
        ("frank.json", None),
    ],
)
def test_a_name_says_its_rank(name: str, rank: int | None) -> None:
    assert named_rank(Path(name)) == rank


def test_who_says_no_rank_gets_the_lowest_that_is_free() -> None:
    assert assigned([None, 0, None, 3, None]) == [1, 0, 2, 3, 4]
    assert assigned([2, 2, None]) == [2, 2, 0]


def test_a_folder_gives_its_traces_whatever_their_depth_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in (
        "rank10.json",
        "rank9.json",
        "b/rank2/t.pt.trace.json.gz",
        "b/rank2/t.1.pt.trace.json.tmp",
        ".git/x.json",
    ):
        trace(tmp_path / name, 10)
    (tmp_path / "notes.txt").write_text("{}")
    inputs = find([tmp_path, tmp_path / "rank9.json"])  # named twice, read once
    assert [one.path.name for one in inputs] == [
        "rank9.json",
        "rank10.json",
        "t.1.pt.trace.json.tmp",
        "t.pt.trace.json.gz",
    ]
    assert [one.named for one in inputs] == [9, 10, 2, 2]


def test_a_recording_among_them_is_one_input(tmp_path: Path) -> None:
    trace(tmp_path / "run" / "rank0" / "trace.0.light.json", 10)
    (tmp_path / "run" / "recording.json").write_text("{}")
    assert [one.path for one in find([tmp_path])] == [tmp_path / "run"]
    assert [one.path for one in find([tmp_path / "run"])] == [tmp_path / "run"]


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_nothing_and_a_folder_without_a_trace_are_clear_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.txt").write_text("x")
    with pytest.raises(InputError, match=name):
        find([tmp_path / name])


def test_the_rank_in_the_trace_counts_before_its_name_and_the_slowest_is_shown_in_full(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", 100, rank=5)
    trace(tmp_path / "rank1.json.gz", 3000)
    trace(tmp_path / "other.trace.json", 200)
    result = analyze(tmp_path, "--output-format", "json")
    made = json.loads(result.stdout)
    assert [(one["rank"], Path(one["path"]).name) for one in made["ranks"]] == [
        (0, "other.trace.json"),
        (1, "rank1.json.gz"),
        (5, "rank0.json"),
    ]
    assert (made["schema"], made["slowest"], made["left_out"]) == (1, 1, [])
    assert {one["diagnosis"]["schema"] for one in made["ranks"]} == {1}
    text = analyze(tmp_path).stdout
    assert "rank1.json.gz" in text.splitlines()[0]
    table = text.split("3 ranks")[1].splitlines()[1:]
    assert [line.split()[:3] for line in table[1:]] == [["0", "200", "µs"], ["*", "1", "3.00"], ["5", "100", "µs"]]


def test_one_path_gives_the_diagnosis_itself(tmp_path: Path) -> None:
    path = trace(tmp_path / "rank3.json", 100)
    for where in (path, tmp_path):
        assert json.loads(analyze(where, "--output-format", "json").stdout)["run"]["script"] == "rank3.json"


def test_one_that_cannot_be_read_is_named_and_the_others_are_diagnosed(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", 100)
    trace(tmp_path / "rank1.json", 100)
    healthy = analyze(tmp_path)
    assert healthy.return_value in (0, 4)
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    beside = analyze(tmp_path)
    assert beside.return_value == healthy.return_value
    assert "left out: " in beside.stderr and "config.json" in beside.stderr
    (tmp_path / "rank2.json").write_bytes(b"")
    broken = analyze(tmp_path, "--output-format", "json")
    assert broken.return_value == 2
    made = json.loads(broken.stdout)
    assert [one["rank"] for one in made["ranks"]] == [0, 1]
    assert {(Path(one["path"]).name, one["certain"]) for one in made["left_out"]} == {
        ("rank2.json", True),
        ("config.json", False),
    }


def test_none_that_can_be_read_is_one_clear_error(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    error = analyze(tmp_path).exception
    assert isinstance(error, InputError)
    assert "none of 2 files" in str(error)
    assert error.exit_code == 2


def test_ranks_that_appear_twice_are_told_apart_by_their_files(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.step1.json", 100)
    trace(tmp_path / "rank0.step2.json", 100)
    text = analyze(tmp_path).stdout
    assert "(rank0.step1.json)" in text and "(rank0.step2.json)" in text


def test_the_report_that_is_asked_for_is_of_the_rank_that_is_shown(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", 100)
    trace(tmp_path / "rank1.json", 900)
    for shape in ("full", "json", "concise"):
        analyze(tmp_path, "--output-format", shape, "-o", tmp_path / "r" / f"{shape}.html")
        assert "rank1.json" in (tmp_path / "r" / f"{shape}.html").read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "r")


def test_several_processes_say_the_same_as_one(tmp_path: Path) -> None:
    for rank in range(3):
        trace(tmp_path / f"rank{rank}.json", 100 + rank)
    (tmp_path / "rank3.json").write_text("broken")
    one, two = (
        gpudoctor("analyze", "--output-format", "json", "--jobs", jobs, str(tmp_path), cwd=tmp_path) for jobs in "12"
    )
    assert (one.code, one.out, one.err) == (two.code, two.out, two.err)
    assert [rank["rank"] for rank in json.loads(two.out)["ranks"]] == [0, 1, 2]
