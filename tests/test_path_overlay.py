"""`gpudoctor open --critical-path`: the trace as it was, with the path drawn in on the trace's own clock."""

from __future__ import annotations

import gzip
import json
import shutil
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from gpudoctor import path_overlay, perfetto
from gpudoctor import profile as schema
from gpudoctor.cli import app
from gpudoctor.errors import GpuDoctorError, InputError, UsageError
from gpudoctor.ingest import open_path, ranks
from gpudoctor.profile import Profile
from tests.shared_traces import shared_trace
from tests.synthetic import recording, trace
from tests.synthetic.programs import small

DATA = Path(__file__).parent / "ingest" / "data"
Event = dict[str, Any]


def draw(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["open", "--critical-path", *map(str, words)], standalone_mode=False)


def drawn(*words: str | Path) -> Path:
    result = draw(*words)
    assert result.return_value == 0, result.exception
    return Path(result.stdout.removesuffix("\n"))


def text(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def events(file: Path) -> list[Event]:
    """All events of a trace; times are exact."""
    found: list[Event] = json.loads(text(file), parse_float=Decimal)["traceEvents"]
    return found


def ours(all_events: list[Event], phase: str) -> list[Event]:
    return [event for event in all_events if event.get("pid") == path_overlay.PROCESS and event["ph"] == phase]


def arrows(all_events: list[Event]) -> list[tuple[int, int]]:
    """The slices that each arrow leads from and to, as a viewer binds them: to the last one begun on its thread."""
    open_slice: dict[int, int] = {}
    begun: dict[int, int] = {}
    made = []
    number = -1
    mine = [event for event in all_events if event.get("pid") == path_overlay.PROCESS and event["ph"] in "Xsf"]
    for event in sorted(mine, key=lambda event: event["ts"]):
        if event["ph"] == "X":
            number += 1
            open_slice[event["tid"]] = number
        elif event["ph"] == "s":
            begun[event["id"]] = open_slice[event["tid"]]
        else:
            assert event["bp"] == "e"
            made.append((begun[event["id"]], open_slice[event["tid"]]))
    return made


def check_drawing(trace_file: Path, out: Path, profile: Profile) -> None:
    """What holds for every drawing: the path whole, on the trace's clock, each stretch tied to the next."""
    original, made = events(trace_file), events(out)
    path = profile.table("critical_path")
    slices = ours(made, "X")
    assert [event for event in made if event.get("pid") != path_overlay.PROCESS] == original
    assert sum(event["dur"] for event in slices) * 1000 == int(path["dur_ns"].sum())
    assert all(before["ts"] + before["dur"] == after["ts"] for before, after in pairwise(slices))
    assert arrows(made) == [(number, number + 1) for number in range(len(slices) - 1)]
    names = {event["tid"]: event["args"]["name"] for event in ours(made, "M") if event["name"] == "thread_name"}
    assert {event["tid"] for event in slices} == set(names)
    real = {
        (event["name"], event["ts"], event["dur"])
        for event in original
        if event.get("cat", "").lower() in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
    }
    whole = [event for event in slices[1:-1] if event["args"]["kind"] == "device"]  # the step's ends cut some
    assert whole
    assert {(event["name"], event["ts"], event["dur"]) for event in whole} <= real


@pytest.mark.parametrize("whole_us", [False, True])
def test_a_trace_is_copied_beside_itself_with_the_path_on_its_own_clock(tmp_path: Path, whole_us: bool) -> None:
    file = tmp_path / "t.pt.trace.json"
    trace(small.train, file, whole_us=whole_us)
    before = file.read_bytes()
    out = drawn(file)
    assert out == tmp_path / "t.pt.trace.critical_path.json.gz"
    assert file.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([file.name, out.name])
    check_drawing(file, out, open_path(file))


def test_a_compressed_trace_is_drawn_and_the_name_given_says_whether_the_copy_is_compressed(tmp_path: Path) -> None:
    file = tmp_path / "t.json.gz"
    trace(small.train, tmp_path / "plain.json")
    file.write_bytes(gzip.compress((tmp_path / "plain.json").read_bytes()))
    out = drawn(file)
    assert out == tmp_path / "t.critical_path.json.gz"
    assert drawn(file, "-o", tmp_path / "other.json").read_bytes() == text(out)


def test_the_copy_is_a_trace_like_the_original(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    trace(small.train, file)
    first, again = open_path(file), open_path(drawn(file))
    for name in ("steps", "ops", "kernels", "critical_path"):
        assert first.table(name).equals(again.table(name))


def test_of_a_recording_the_burst_with_the_paths_step_is_drawn_into_the_recording(tmp_path: Path) -> None:
    recording(small.train, tmp_path / "run")
    out = drawn(tmp_path / "run")
    assert out.parent == tmp_path / "run"
    (file,) = (tmp_path / "run" / "rank0").glob(out.name.removesuffix(".critical_path.json.gz") + ".json*")
    profile = open_path(tmp_path / "run")
    assert int(profile.table("critical_path")["start_ns"].iloc[0]) != 0
    check_drawing(file, out, profile)
    with pytest.raises(UsageError, match="rank0 was judged, and rank 1 has no critical path"):
        raise draw(tmp_path / "run", "--rank", "1").exception


@pytest.mark.parametrize(
    "name",
    [
        "tbplugin/resnet50_num_workers_0.v3.pt.trace.json.gz",
        "hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "param/dlrm8__worker0_step_12.1694128201545.pt.trace.json.gz",
    ],
)
def test_public_traces_are_drawn(name: str, tmp_path: Path) -> None:
    file = shared_trace(name)
    check_drawing(file, drawn(file, "-o", tmp_path / "out.json"), open_path(file))


def test_perfetto_gets_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.json"
    trace(small.train, file)
    served: list[Path] = []
    monkeypatch.setattr(perfetto, "PORT", 0)
    monkeypatch.setattr(
        perfetto.OneFile, "serve_once", lambda server: (served.append(server.file), server.server_close())
    )
    result = draw(file, "--perfetto", "--no-browser")
    out, link = result.stdout.splitlines()
    assert served == [Path(out)]
    assert link.startswith("https://ui.perfetto.dev/")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (DATA / "cpu_step.json", "no critical path: no profiled step with work on a device was found in it; run"),
        (DATA / "torch_trace_cold.log", "no critical path: "),
        (Path("gone.json"), "gone.json: no such file or folder"),
        (DATA.parent / "kernel_names.tsv", "kernel_names.tsv: not a Kineto trace"),
    ],
)
def test_what_has_no_path_is_said_with_what_to_do(file: Path, says: str, tmp_path: Path) -> None:
    result = draw(file, "-o", tmp_path / "out.json")
    assert isinstance(result.exception, GpuDoctorError)
    assert says in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_trace_itself_and_a_folder_that_is_not_there_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    trace(small.train, file)
    before = file.read_bytes()
    assert "the trace itself, which stays as it is" in str(draw(file, "-o", file).exception)
    assert "cannot be written (No such file or directory); name another file" in str(
        draw(file, "-o", tmp_path / "gone" / "out.json").exception
    )
    result = CliRunner().invoke(app, ["open", str(file), "-o", "x.json"], standalone_mode=False)
    assert "add that option" in str(result.exception)
    assert [each.name for each in tmp_path.iterdir()] == ["t.json"]
    assert file.read_bytes() == before


# -- the events --------------------------------------------------------------------------------------------------------


def made_of(*rows: Event) -> list[Event]:
    """The events of a path, as JSON gives them back."""
    stretches = [{"position": number, "step": 1, **row} for number, row in enumerate(rows)]
    profile = Profile({"critical_path": schema.frame("critical_path", stretches)})
    found: list[Event] = json.loads(msgspec.json.encode(list(path_overlay.events(profile, -1_610_366_662_254_362_001))))
    return found


def test_stretches_lie_on_the_lines_of_their_threads_and_streams_and_say_what_they_are() -> None:
    made = made_of(
        {"kind": "host", "start_ns": 1, "dur_ns": 10, "thread": 5, "file": "a.py", "line": 3},
        {"kind": "call", "name": "cudaLaunchKernel", "start_ns": 11, "dur_ns": 10, "thread": 5, "call": 8},
        {"kind": "latency", "name": "gemm", "start_ns": 21, "dur_ns": 1, "device": 0, "stream": 7, "kernel": 4},
        {"kind": "device", "name": "gemm", "start_ns": 22, "dur_ns": 9, "device": 0, "stream": 7, "kernel": 4},
        {"kind": "wait", "start_ns": 31, "dur_ns": 9},
    )
    names = {event["tid"]: event["args"]["name"] for event in ours(made, "M") if event["name"] == "thread_name"}
    assert [(names[event["tid"]], event["name"]) for event in ours(made, "X")] == [
        ("thread 5", "Python between operators"),
        ("thread 5", "cudaLaunchKernel"),
        ("GPU 0, stream 7", "launch latency: gemm"),
        ("GPU 0, stream 7", "gemm"),
        ("no thread known", "wait"),
    ]
    assert ours(made, "X")[0]["args"] == {"step": 1, "kind": "host", "line": "a.py:3"}
    assert ours(made, "X")[3]["args"] == {"step": 1, "kind": "device", "kernel": 4}


def test_no_digit_of_a_time_is_lost() -> None:
    rows = [{"position": 0, "step": 1, "kind": "host", "start_ns": 1, "dur_ns": 1_001}]
    profile = Profile({"critical_path": schema.frame("critical_path", rows)})
    text = msgspec.json.encode(list(path_overlay.events(profile, -1_610_366_662_254_362_001)))
    assert b'"ts":1610366662254362.002,"dur":1.001' in text


def test_a_path_of_one_stretch_has_no_arrow_and_no_path_draws_nothing_but_names() -> None:
    one = made_of({"kind": "host", "start_ns": 0, "dur_ns": 5})
    assert [event["ph"] for event in one].count("X") == 1
    assert not ours(one, "s") and not ours(one, "f")
    assert {event["ph"] for event in made_of()} == {"M"}


# -- the file ----------------------------------------------------------------------------------------------------------


def written(tmp_path: Path, content: bytes) -> bytes:
    file, out = tmp_path / "in.json", tmp_path / "out.json"
    file.write_bytes(content)
    path_overlay.write(file, out, [{"ph": "X", "mine": 1}])
    return out.read_bytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": 1, "traceEvents": [{"ph": "i"}], "z": 2}', b'{"a": 1, "traceEvents": [\n@,{"ph": "i"}], "z": 2}'),
        (b' [{"ph": "i"}', b' [\n@,{"ph": "i"}'),
        (
            b'{"other": {"traceEvents": [1]}, "traceEvents": [{"ph": "i"}]}',
            b'{"other": {"traceEvents": [1]}, "traceEvents": [\n@,{"ph": "i"}]}',
        ),
        (
            b'{"long": "' + b"x" * 300_000 + b'", "traceEvents": [{"ph": "' + b"y" * 5_000_000 + b'"}]}',
            b'{"long": "' + b"x" * 300_000 + b'", "traceEvents": [\n@,{"ph": "' + b"y" * 5_000_000 + b'"}]}',
        ),
    ],
    ids=["object", "list that does not end", "name used twice", "long"],
)
def test_events_are_put_in_front_of_the_traces_own_and_the_rest_stays(
    tmp_path: Path, content: bytes, expected: bytes
) -> None:
    assert written(tmp_path, content) == expected.replace(b"@", b'{"ph":"X","mine":1}')


def test_a_file_without_a_list_of_events_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no traceEvents"):
        written(tmp_path, b'{"a": 1}')
    assert [each.name for each in tmp_path.iterdir()] == ["in.json"]


def test_a_cut_file_is_copied_as_far_as_it_goes_and_that_is_said(tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    trace(small.train, whole)
    cut = tmp_path / "cut.json.gz"
    packed = gzip.compress(whole.read_bytes())
    cut.write_bytes(packed[: len(packed) * 9 // 10])
    result = draw(cut, "-o", tmp_path / "out.json")
    assert result.return_value == 0, result.exception
    assert "its gzip data ends early; the copy ends there as well" in result.stderr
    assert (tmp_path / "out.json").read_bytes().count(b'"critical_path"') > 10


def test_a_copy_is_no_rank_of_its_own_in_a_folder_of_traces(tmp_path: Path) -> None:
    shutil.copy(DATA / "cpu_step.json", tmp_path)
    trace(small.train, tmp_path / "gpu.json")
    copy = drawn(tmp_path / "gpu.json")
    assert [one.path.name for one in ranks.find([tmp_path])] == ["cpu_step.json", "gpu.json"]
    assert [one.path for one in ranks.find([copy])] == [copy]
