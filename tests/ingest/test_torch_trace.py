"""A compile log alone. `data/torch_trace_*.log` were recorded with torch 2.13 (cold and warm cache) and cut: no graphs,
no generated code, few of the events. The public logs are older: torch 2.4 to 2.8."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.cli import main
from gpudoctor.cli.options import exit_code
from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.errors import InputError
from gpudoctor.ingest import compile_records, open_path, torch_trace
from gpudoctor.ingest.ranks import find
from gpudoctor.profile import Profile
from gpudoctor.ranks import diagnose_all
from gpudoctor.reporters import ranks as ranks_reporter
from gpudoctor.reporters import render
from tests.shared_traces import shared_trace

DATA = Path(__file__).parent / "data"
COLD, WARM = DATA / "torch_trace_cold.log", DATA / "torch_trace_warm.log"
TABLES = ("compilations", "graph_breaks", "recompiles", "cache")
SHARED = {
    name: f"torchtrace/{name}"
    for name in (
        "artifacts.log",
        "cache_hit_miss.log",
        "chromium_events.log",
        "comp_failure.log",
        "comp_metrics.log",
        "links.log",
        "simple.log",
        "simple_corrupted_json.log",
        "multi_rank_schedule/dedicated_log_torch_trace_rank_0_6u3fubwl.log",
        "multi_rank_schedule/dedicated_log_torch_trace_rank_1_n8zycf07.log",
        "multi_rank_schedule/dedicated_log_torch_trace_rank_2.log",
    )
}


def judged(path: Path) -> Diagnosis:
    return diagnose(open_path(path), load_rules())


def one(profile: Profile, compile_id: str) -> dict[str, object]:
    rows = profile.table("compilations")
    (row,) = rows[rows["compile_id"] == compile_id].to_dict("records")
    return {str(key): value for key, value in row.items()}


# -- what a log of torch 2.13 says ------------------------------------------------------------------------------------


def test_a_compilation_has_its_seconds_by_phase_and_its_graph() -> None:
    row = one(open_path(COLD), "0/0")
    assert (row["function"], row["file"], row["line"]) == ("forward", "/proj/train.py", 5)
    assert (row["caller_file"], row["caller_line"]) == ("/proj/train.py", 19)
    assert (row["dur_ns"], row["backend_ns"], row["dynamo_ns"]) == (10_547_178_000, 10_365_086_000, 182_092_000)
    assert (row["inductor_ns"], row["codegen_ns"], row["kernel_compile_ns"]) == (
        9_368_845_000,
        9_235_089_000,
        619_183_000,
    )
    assert (row["graph_ops"], row["graph_nodes"], row["graph_inputs"], row["guards"]) == (4, 8, 3, 33)
    assert (row["backward_graphs"], row["restarts"], row["cached"]) == (1, 0, False)
    assert row["start_ns"] == 0


def test_a_restart_is_counted_with_its_reason_and_its_time() -> None:
    row = one(open_path(COLD), "1/0")
    assert row["restarts"] == 1
    assert row["restart_reasons"]
    assert 0 < int(str(row["restart_ns"])) < int(str(row["dynamo_ns"]))


def test_the_recompile_limit_is_seen_on_the_code_that_runs_eagerly_from_then_on() -> None:
    row = one(open_path(COLD), "3/8")
    assert row["limit_hit"] is True
    assert (row["function"], row["file"], row["line"]) == ("odd", "/proj/train.py", 13)
    assert row["code_compiles"] == 9
    assert pd.isna(row["graph_ops"])


def test_a_break_that_dynamo_does_not_count_is_there_with_its_line() -> None:
    breaks = open_path(COLD).table("graph_breaks")
    branching = breaks[breaks["reason"] == "Data-dependent branching"]
    assert set(zip(branching["file"], branching["line"], strict=True)) == {("/proj/train.py", 7)}
    assert set(branching["graphs"]) == {3}
    assert branching["ran_in_steps"].isna().all()


def test_cache_look_ups_of_a_cold_and_a_warm_run() -> None:
    cold, warm = open_path(COLD).table("cache"), open_path(WARM)
    assert set(cold["outcome"]) == {"miss"}
    assert cold["spent_ns"].max() == 9_365_217_923
    hits = warm.table("cache")
    assert set(zip(hits["kind"], hits["outcome"], strict=True)) == {("fx_graph", "hit"), ("aot_autograd", "hit")}
    assert hits[hits["kind"] == "aot_autograd"]["saved_ns"].max() == 11_343_000_000
    assert warm.table("compilations")["cached"].all()


def test_rules_about_compiling_work_without_a_step_and_claim_none() -> None:
    diagnosis = judged(COLD)
    where = {(f.rule, f.where.file, f.where.line) for f in diagnosis.findings if f.where}
    assert {("GD101", "/proj/train.py", 7), ("GD101", "/proj/train.py", 9), ("GD102", "/proj/train.py", 13)} <= where
    assert not any("every step" in finding.message for finding in diagnosis.findings)
    priced = [finding.saving for finding in diagnosis.findings if finding.saving]
    assert priced
    assert all(saving.compile_ns and not saving.of_time for saving in priced)  # in compile time, not in steps


def test_the_verdict_is_about_compiling_and_says_that_there_are_no_step_times() -> None:
    diagnosis = judged(COLD)
    assert diagnosis.run.source == "log"
    assert diagnosis.run.torch == "2.13.0+cpu"
    assert diagnosis.verdict.startswith("14 graphs compiled in 28.5 s: 4 graph breaks, 10 recompiles")
    assert "the recompile limit was hit 1 time" in diagnosis.verdict
    reasons = {rule.rule: rule.reason for rule in diagnosis.not_measured}
    assert reasons["GD202"] == torch_trace.NO_STEPS
    assert all("gpudoctor check" in rule.how or "preview" in rule.reason for rule in diagnosis.not_measured)
    assert "Inconclusive" not in render("html", diagnosis) + render("concise", diagnosis)


@pytest.mark.parametrize(("fail_on", "code"), [("never", 0), ("warning", 1), ("error", 0)])
def test_exit_codes_are_those_of_a_run(fail_on: str, code: int) -> None:
    config = Config(fail_on=fail_on)  # type: ignore[arg-type]
    assert exit_code(diagnose(open_path(COLD), load_rules(), config), config) == code


def test_the_command_line_reads_a_log_and_answers_sql(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "some name.log").write_bytes(COLD.read_bytes())

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "gpudoctor", *words], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout

    assert json.loads(run("analyze", "trace", "--output-format", "json"))["counters"]["graph_breaks"] == 4
    sql = "select count(*) as n from compilations where limit_hit"
    assert json.loads(run("query", "trace", sql, "--output-format", "json")) == [{"n": 1}]


@pytest.mark.parametrize("ranks", [1, 2])
def test_concise_says_why_a_log_of_no_compilation_is_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    for rank in range(ranks):
        (tmp_path / f"rank_{rank}.log").write_text(record({"chromium_event": {}}))
    monkeypatch.setattr(sys, "argv", ["gpudoctor", "analyze", str(tmp_path), "--output-format", "concise"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (4, "")
    lines = said.err.splitlines()
    assert len(lines) == ranks
    assert all("inconclusive: Nothing was compiled. No rule could be judged on this run." in line for line in lines)


# -- what stands in a log, and what the tables make of it ------------------------------------------------------------


def record(metadata: dict[str, object], payload: str | None = None) -> str:
    line = f"V1130 14:38:06.245000 77 torch/_dynamo/convert_frame.py:1] {json.dumps(metadata)}\n"
    return line + "".join(f"\t{part}\n" for part in payload.split("\n")) if payload is not None else line


IDS = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
METRICS = {"co_name": "f", "co_filename": "/proj/a.py", "co_firstlineno": 3, "graph_op_count": 2}


def written(tmp_path: Path, *parts: str) -> Profile:
    (tmp_path / "a.log").write_text("".join(parts))
    return open_path(tmp_path / "a.log")


def test_a_payload_is_never_taken_for_a_record(tmp_path: Path) -> None:
    inside = record({"compilation_metrics": {**METRICS, "co_name": "inside"}, "frame_id": 7, "frame_compile_id": 0})
    artifact = {"artifact": {"name": "some_graph", "encoding": "string"}, **IDS}
    profile = written(
        tmp_path,
        record(artifact, f"x\r{inside}\n{inside}"),
        record({"artifact": {"name": "dynamo_graph_break_reason"}, **IDS}, inside),
        record({"compilation_metrics": METRICS, **IDS}),
    )
    assert list(profile.table("compilations")["function"]) == ["f"]
    assert profile.facts["notes"] == []


def test_compilations_after_a_reset_have_the_same_ids_and_rows_of_their_own(tmp_path: Path) -> None:
    start = record({"dynamo_start": {"stack": [{"line": 3, "name": "f", "filename": "/proj/a.py"}]}, **IDS})
    end = record({"compilation_metrics": METRICS, **IDS})
    rows = written(tmp_path, *[start, end] * 3).table("compilations")
    assert list(rows["compile_id"]) == ["0/0"] * 3
    assert list(rows["code_compiles"]) == [1, 2, 3]


def test_events_stand_in_for_times_that_the_metrics_lack(tmp_path: Path) -> None:
    def event(name: str, phase: str, at: float) -> str:
        return record({"chromium_event": {}, **IDS}, json.dumps({"name": name, "ph": phase, "ts": at}))

    profile = written(
        tmp_path,
        event("entire_frame_compile", "B", 1_700_000_000_000_000.0),
        event("inductor_compile", "B", 1_700_000_000_000_100.0),
        event("inductor_compile", "E", 1_700_000_000_000_350.0),
        event("fx_graph_cache_disabled", "i", 1_700_000_000_000_360.0),
        event("entire_frame_compile", "E", 1_700_000_000_001_000.0),
        record({"compilation_metrics": METRICS, **IDS}),
    )
    row = one(profile, "0/0")
    assert (row["dur_ns"], row["inductor_ns"], row["start_ns"]) == (1_000_000, 250_000, 0)
    assert list(profile.table("cache")["outcome"]) == ["disabled"]
    assert row["cached"] is False


@pytest.mark.parametrize(
    ("kind", "reason", "limit"),
    [
        ("Unsupported", "Dynamo recompile limit exceeded\n  Explanation: …", True),
        ("FailOnRecompileLimitHit", "recompile_limit reached", True),
        ("CacheLimitExceeded", "cache_size_limit reached", True),
        ("InternalTorchDynamoError", "ValueError: no limit here", False),
    ],
)
def test_a_failure_has_its_place_and_tells_the_limit(tmp_path: Path, kind: str, reason: str, limit: bool) -> None:
    place = {"fail_user_frame_filename": "/proj/b.py", "fail_user_frame_lineno": 9}
    metrics = {**METRICS, "graph_op_count": None, "fail_type": kind, "fail_reason": reason, **place}
    profile = written(tmp_path, record({"compilation_metrics": metrics, **IDS}))
    row = one(profile, "0/0")
    assert (row["fail_type"], row["fail_file"], row["fail_line"], row["limit_hit"]) == (kind, "/proj/b.py", 9, limit)
    assert ("limit was hit" if limit else "1 compilation failed") in judged(tmp_path / "a.log").verdict


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/train.py", True),
        ("/data/users/me/pytorch/torch/nn/modules/module.py", False),
        ("/data/users/me/pytorch/torch/_dynamo/eval_frame.py", False),
        ("/venv/lib/python3.11/site-packages/torch/optim/adam.py", False),
        ("/usr/lib/python3.11/unittest/case.py", False),
        ("/home/me/torch/model.py", True),
        ("C:\\Python\\Lib\\site-packages\\torch\\nn\\functional.py", False),
        ("<eval_with_key>.1", False),
        ("", False),
    ],
)
def test_whose_a_file_of_another_machine_is(file: str, users: bool) -> None:
    assert (torch_trace.FilesElsewhere().name(file) is not None) is users


def test_a_log_in_which_nothing_was_compiled_is_inconclusive(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(record({"str": ["/proj/a.py", 0]}))
    diagnosis = judged(tmp_path / "a.log")
    assert "Nothing was compiled" in diagnosis.verdict
    assert diagnosis.passed == ()
    assert exit_code(diagnosis, Config()) == 4


# -- damage -----------------------------------------------------------------------------------------------------------


def same(a: Profile, b: Profile) -> None:
    for name in TABLES:
        pd.testing.assert_frame_equal(a.table(name), b.table(name))


def test_line_ends_of_another_system_and_compression_change_nothing(tmp_path: Path) -> None:
    text = COLD.read_bytes()
    (tmp_path / "crlf.log").write_bytes(text.replace(b"\n", b"\r\n"))
    (tmp_path / "zipped").write_bytes(gzip.compress(text))
    for name in ("crlf.log", "zipped"):
        same(open_path(tmp_path / name), open_path(COLD))


def test_a_gzip_file_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = gzip.compress(COLD.read_bytes())
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
    profile = open_path(tmp_path / "a.log.gz")
    assert 0 < len(profile.table("compilations")) < 15
    assert "damaged" in profile.facts["notes"][0]


def test_damaged_records_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    lines = COLD.read_bytes().split(b"\n")
    lines.insert(0, b"\x00\xff junk\n\x89PNG")
    at = next(number for number, line in enumerate(lines) if b'"create_symbol"' in line)
    lines[at] = lines[at][:150]
    (tmp_path / "a.log").write_bytes(b"\n".join(lines))
    profile = open_path(tmp_path / "a.log")
    assert len(profile.table("compilations")) == 15
    assert profile.facts["notes"] == ["2 records of the compile log are damaged and left out"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dedicated_log_torch_trace_rank_0_abc.log", b""),
        ("dedicated_log_torch_trace.log", b"nothing of the kind\n" * 9),
        ("a.log", b"2024-01-01 INFO epoch 3\n"),
        ("a.log", b""),
        ("a.log", bytes(range(256)) * 9),
        ("a.log.gz", gzip.compress(b"x", mtime=0)[:12]),
    ],
)
def test_a_file_that_is_no_log_is_one_clear_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        judged(tmp_path / name)
    assert name in str(error.value)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_gives_tables_or_one_clear_error(data: st.DataObject, tmp_path: Path) -> None:
    whole = COLD.read_bytes()[:60_000] if data.draw(st.booleans()) else WARM.read_bytes()[:40_000]
    edited = whole
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(edited)))
        length = data.draw(st.sampled_from([0, 1, 3, 40, 900]))
        new = data.draw(
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([b"null", b"[]", b"{}", b'"x"', b"-1", b"1e999", b"9" * 40, b"\n", b"\n\t", b"NaN"]),
            )
        )
        edited = edited[:start] + new + edited[start + length :]
    path = tmp_path / "dedicated_log_torch_trace_rank_0_x.log"
    path.write_bytes(edited[: data.draw(st.integers(0, len(edited)))] if data.draw(st.booleans()) else edited)
    try:
        profile = open_path(path)
    except InputError as error:
        assert path.name in str(error)
    else:
        assert len(profile.table("compilations")) <= 20
        assert diagnose(profile, load_rules()).verdict


def test_every_number_and_text_of_the_metadata_may_be_of_another_kind(tmp_path: Path) -> None:
    text = COLD.read_text()[:60_000]
    for new in ("null", "[]", "{}", '"x"', "-1", "1e999", "9" * 40, "true"):
        changed = re.sub(r"(?<=[:\[] )(?:\d+|\"[^\"\\]*\"|null)(?=[,}\]])", new, text)
        (tmp_path / "dedicated_log_torch_trace.log").write_text(changed)
        assert diagnose(open_path(tmp_path / "dedicated_log_torch_trace.log"), load_rules()).verdict


# -- several ----------------------------------------------------------------------------------------------------------


def test_a_folder_of_logs_is_one_a_rank_and_other_logs_are_passed_over(tmp_path: Path) -> None:
    for rank in (1, 0):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes((COLD if rank else WARM).read_bytes())
    (tmp_path / "train.log").write_text("epoch 1\n")
    ranks = diagnose_all(find([tmp_path]), Config())
    assert [rank.rank for rank in ranks.ranks] == [0, 1]
    assert [rank.diagnosis.counters["recompiles"] for rank in ranks.ranks] == [3, 10]
    assert "graphs  breaks  recompiles" in ranks_reporter.render_table(ranks)
    with pytest.raises(InputError, match="name one"):
        open_path(tmp_path)


# -- public logs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHARED)
def test_counts_of_public_logs_are_those_of_a_search_in_their_text(name: str) -> None:
    path = shared_trace(SHARED[name])
    text = path.read_text(encoding="utf-8", errors="replace")
    profile = open_path(path)
    rows = profile.table("compilations")
    assert len(rows) == len(re.findall(r'^V.*\{"compilation_metrics"', text, re.M))
    breaks = len(re.findall(r'^V.*"dynamo_graph_break_reason"', text, re.M))
    # where none is logged, what goes on behind one tells of it
    goes_on = len(set(re.findall(r'"co_name": "(torch_dynamo_resume_in_\w+)"', text)))
    assert len(profile.table("graph_breaks")) == (breaks or goes_on)
    assert len(profile.table("recompiles")) == len(re.findall(r'^V.*"recompile_reasons"', text, re.M))
    outcomes = re.findall(r'^V.*"(?:fx_graph|aotautograd)_cache_(hit|miss|bypass|hash)"', text, re.M)
    outcomes += ["disabled"] * len(re.findall(r'^\t"name": "fx_graph_cache_disabled"', text, re.M))
    assert len(profile.table("cache")) == len(outcomes)
    guards = [int(n) for n in re.findall(r'^V.*\{"compilation_metrics".*?"guard_count": (\d+)', text, re.M)]
    assert sorted(rows["guards"].dropna().astype(int)) == sorted(guards)
    assert rows["dur_ns"].notna().all()
    assert rows["start_ns"].notna().all()
    assert bool(profile.facts["notes"]) == ("corrupted" in name)
    assert exit_code(diagnose(profile, load_rules()), Config()) == 0


def test_three_public_ranks_at_once() -> None:
    ranks = diagnose_all(find([shared_trace("torchtrace/multi_rank_schedule")]), Config())
    assert [rank.rank for rank in ranks.ranks] == [0, 1, 2]


def test_a_public_log_of_a_failing_backend_says_so() -> None:
    profile = open_path(shared_trace("torchtrace/comp_failure.log"))
    row = one(profile, "0/0")
    assert (row["fail_type"], row["limit_hit"]) == ("BackendCompilerFailed", False)
    assert "1 compilation failed" in diagnose(profile, load_rules()).verdict


def test_public_cache_look_ups_with_their_reason_and_the_time_they_saved() -> None:
    rows = open_path(shared_trace("torchtrace/cache_hit_miss.log")).table("cache")
    assert sorted(rows["outcome"]) == ["bypass"] * 3 + ["hit"] + ["miss"] * 2
    assert rows["reason"].dropna().str.contains("flex_attention").all()
    assert list(rows["saved_ns"].dropna()) == [4_009_141_776]


def test_payloads_that_nobody_reads_are_not_kept() -> None:
    kept = [len(payload) for _, payload in compile_records.records(COLD, lambda _: False)]
    assert kept
    assert not any(kept)
