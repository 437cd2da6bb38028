"""The commands: fast answers without heavy imports, clear errors, exit codes."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor import __version__
from gpudoctor.resources import rules_dir
from tests.e2e.conftest import SAMPLES, Checked, environment, gpudoctor

HEAVY = {"torch", "pandas", "duckdb", "pyarrow", "numpy", "libcst"}


def modules_after(*words: str, cwd: Path) -> set[str]:
    code = (
        "import sys\nfrom gpudoctor.cli import main\nsys.argv = ['gpudoctor', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit: pass\nsys.stderr.write('\\n@@' + ' '.join(sorted(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, env=environment(), capture_output=True, text=True, check=True
    )
    return set(run.stderr.rpartition("@@")[2].split())


@pytest.mark.parametrize("words", [("--help",), ("explain", "GD101"), ("rules", "list"), ("check", "--help")])
def test_what_only_reads_imports_nothing_heavy(words: tuple[str, ...], tmp_path: Path) -> None:
    assert not modules_after(*words, cwd=tmp_path) & HEAVY


def test_analyze_does_not_import_torch(check: Callable[..., Checked]) -> None:
    recording = check(SAMPLES / "host-sync" / "train.py").recording
    loaded = modules_after("analyze", str(recording), cwd=recording)
    assert "torch" not in loaded
    assert "pandas" in loaded  # the check can fail: it did analyse


def test_analyze_says_what_check_said_from_the_cache_and_without_it(check: Callable[..., Checked]) -> None:
    run = check(SAMPLES / "recompile-shape" / "train.py")
    cached = gpudoctor("analyze", "--output-format", "json", str(run.recording), cwd=run.folder)
    assert json.loads(cached.out) == run.diagnosis
    for table in (run.recording / "profile").iterdir():
        table.unlink()
    rebuilt = gpudoctor("analyze", "--output-format", "json", str(run.recording), cwd=run.folder)
    assert json.loads(rebuilt.out) == run.diagnosis


def test_analyze_reads_a_bare_trace(check: Callable[..., Checked]) -> None:
    run = check(SAMPLES / "host-sync" / "train.py")
    (trace,) = run.recording.glob("rank0/trace.*.detail.json")
    found = gpudoctor("analyze", "--output-format", "json", str(trace), cwd=run.folder)
    assert found.code == 0, found.err
    assert found.diagnosis["run"]["step_source"] == "ProfilerStep"
    assert "GD101" in {rule["rule"] for rule in found.diagnosis["not_measured"]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("check",), "nothing to run"),
        (("check", "missing.py"), "missing.py: no such script"),
        (("check", "train.py", "--lr", "1"), "--lr"),
        (("check", "--select", "GD999", "train.py"), "GD999"),
        (("check", "--budget", "-1", "train.py"), "budget"),
        (("check", "--budget", "nan", "train.py"), "budget"),
        (("check", "--budget", "inf", "train.py"), "--run-to-end"),
        (("check", "no-such-program-anywhere"), "cannot be started"),
        (("analyze", "nowhere"), "no such file or folder"),
        (("analyze", "."), "recording.json"),
        (("analyze", "train.py"), "not a Kineto trace"),
        (("explain", "GD999"), "GD999"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_a_mistake_gives_one_clear_error_and_exit_code_2(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    run = gpudoctor(*words, cwd=tmp_path)
    assert run.code == 2
    assert says in run.err
    assert "Traceback" not in run.err
    assert run.out == ""


def test_fail_on_decides_the_exit_code(check: Callable[..., Checked]) -> None:
    sick = check(SAMPLES / "graph-break" / "train.py").recording
    for limit, code in (("error", 0), ("warning", 1), ("info", 1), ("never", 0)):
        assert gpudoctor("analyze", "--fail-on", limit, str(sick), cwd=sick).code == code


def shell(script: str, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs a script of the shell in which `$GPUDOCTOR` is the command with these words; its code is `$code`'s."""
    command = shlex.join((sys.executable, "-m", "gpudoctor", *map(str, words)))
    return subprocess.run(
        ["bash", "-c", script.replace("$GPUDOCTOR", command)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


needs_shell = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash to redirect the streams")
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full (Linux)")
GONE = "$GPUDOCTOR | true; exit ${PIPESTATUS[0]}"
"""The reader has gone, or goes before it read anything."""


@needs_shell
@pytest.mark.parametrize("shape", ["full", "concise", "json"])
@pytest.mark.parametrize(("limit", "code"), [("never", 0), ("warning", 1)])
def test_a_reader_that_has_gone_does_not_change_the_exit_code(
    check: Callable[..., Checked], shape: str, limit: str, code: int
) -> None:
    sick = check(SAMPLES / "graph-break" / "train.py").recording
    run = shell(GONE, sick, "analyze", "--output-format", shape, "--fail-on", limit, sick)
    assert run.returncode == code
    assert run.stderr.splitlines() == (["report.html"] if shape == "json" else [])


@needs_shell
@pytest.mark.parametrize("words", [("rules", "list"), ("explain", "GD101"), ("--help",), ("rules", "test", "GD101")])
def test_commands_without_findings_exit_with_0_when_the_reader_has_gone(words: tuple[str, ...], tmp_path: Path) -> None:
    run = shell(GONE, tmp_path, *words)
    assert (run.returncode, run.stderr) == (0, "")


@needs_shell
def test_failed_rule_tests_exit_with_2_when_the_reader_has_gone(tmp_path: Path) -> None:
    text = (rules_dir() / "GD101-graph-break.md").read_text(encoding="utf-8")
    (tmp_path / "GD101-graph-break.md").write_text(text.replace("expect=2", "expect=3"), encoding="utf-8")
    run = shell(GONE, tmp_path, "rules", "test", "GD101-graph-break.md")
    assert (run.returncode, run.stderr) == (2, "")


@needs_shell
@needs_full
def test_a_full_disk_under_standard_output_is_one_line_and_exit_code_2(check: Callable[..., Checked]) -> None:
    sick = check(SAMPLES / "graph-break" / "train.py").recording
    run = shell("$GPUDOCTOR > /dev/full", sick, "analyze", sick)
    assert run.returncode == 2
    assert run.stderr == "gpudoctor: standard output cannot be written (No space left on device)\n"


@needs_shell
@needs_full
@pytest.mark.parametrize("words", [("rules", "list"), ("explain", "GD101"), ("--help",), ("rules", "test", "GD101")])
def test_no_command_shows_a_traceback_on_a_full_disk(words: tuple[str, ...], tmp_path: Path) -> None:
    run = shell("$GPUDOCTOR > /dev/full", tmp_path, *words)
    assert run.returncode == 2
    assert "No space left on device" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert shell("$GPUDOCTOR 2> /dev/full", tmp_path, "analyze", "nowhere").returncode == 2
    assert shell("$GPUDOCTOR 2> /dev/full", tmp_path, "frobnicate").returncode == 2


@needs_shell
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(check: Callable[..., Checked], closed: str) -> None:
    sick = check(SAMPLES / "graph-break" / "train.py").recording
    (sick / "report.html").unlink(missing_ok=True)
    run = shell(f"$GPUDOCTOR {closed}", sick, "analyze", "--fail-on", "warning", sick)
    assert (run.returncode, run.stderr) == (1, "")
    assert (sick / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@needs_shell
def test_a_script_gets_streams_that_are_open_where_ours_are_closed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, stat\n"
        "kinds = [stat.S_ISCHR(os.fstat(i).st_mode) for i in (0, 1, 2)]\n"
        "open('kinds.txt', 'w').write(str(kinds))\n"
    )
    shell("$GPUDOCTOR <&- >&- 2>&-", tmp_path, "check", "train.py")
    assert (tmp_path / "kinds.txt").read_text() == "[True, True, True]"


def test_a_wrong_key_in_pyproject_stops_before_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')\n")
    (tmp_path / "pyproject.toml").write_text("[tool.gpudoctor]\nbudgett = 3\n")
    run = gpudoctor("check", "train.py", cwd=tmp_path)
    assert run.code == 2
    assert "budgett" in run.err
    assert "started" not in run.err


def test_the_path_of_the_report_is_the_last_line(check: Callable[..., Checked]) -> None:
    run = check(SAMPLES / "host-sync" / "train.py")
    printed = gpudoctor("analyze", str(run.recording), cwd=run.folder).out
    assert Path(run.folder, printed.strip().splitlines()[-1]).is_file()
    assert max(map(len, printed.splitlines()[:-1])) <= 80


def test_a_suppression_comment_accepts_the_finding(check: Callable[..., Checked]) -> None:
    text = (SAMPLES / "host-sync" / "train.py").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if ".item()" in line)
    run = check(text.replace(line, f"{line}  # gpudoctor: ignore[GD301] progress bar", 1))
    (finding,) = run.findings("GD301")
    assert finding["accepted"] == "progress bar"


def test_env_tells_machine_variables_and_instruments_in_both_forms(tmp_path: Path) -> None:
    found = json.loads(gpudoctor("env", "--output-format", "json", cwd=tmp_path).out)
    assert found["machine"]["gpudoctor"] == __version__
    assert {"torch", "python", "cpu", "cores", "memory"} <= found["machine"].keys()
    assert found["variables"]["OMP_NUM_THREADS"] == "1"
    assert {"user lines", "module paths", "gpu activity", "gpu clocks and throttling"} <= found["instruments"].keys()
    assert all(text == "measured" or text.startswith("not measured: ") for text in found["instruments"].values())
    printed = gpudoctor("env", cwd=tmp_path).out
    assert all(name in printed for part in found.values() for name in part)
