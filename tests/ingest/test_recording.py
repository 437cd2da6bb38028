"""A damaged recording gives one clear error or a diagnosis that says what is missing; never a crash, never a pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.diagnose import diagnose
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.errors import GpuDoctorError, InputError
from gpudoctor.ingest import open_path

PARTS = ("begun", "bursts", "lines", "names", "run", "settings", "sources", "host")
CHANGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_text(path.read_text()[: len(path.read_text()) // 2]),
    "a list": lambda path: path.write_text('[1, "x", null]'),
    "another object": lambda path: path.write_text('{"steps": "x", "a": []}'),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_part(part: str, change: str, recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(recording, copy, ignore=shutil.ignore_patterns("profile", "*.html"))
    CHANGES[change](copy / "rank0" / f"{part}.json")
    try:
        diagnosis = diagnose(open_path(copy), load_rules())
    except GpuDoctorError as error:
        assert "damaged" in str(error)
    else:
        assert diagnosis.verdict


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_manifest_is_told(change: str, recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(recording, copy)
    CHANGES[change](copy / "recording.json")
    with pytest.raises(InputError, match=r"recording\.json"):
        open_path(copy)


def test_without_the_watch_log_nothing_passes(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(recording, copy, ignore=shutil.ignore_patterns("profile"))
    (copy / "rank0" / "watch.jsonl").unlink()
    diagnosis = diagnose(open_path(copy), load_rules())
    assert diagnosis.passed == ()
    assert "Inconclusive" in diagnosis.verdict


@pytest.mark.parametrize("change", ["gone", "empty", "binary"])
def test_without_its_compile_log_no_compile_rule_passes(change: str, recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(recording, copy, ignore=shutil.ignore_patterns("profile"))
    (log,) = (copy / "rank0" / "torch_trace").glob("*.log")
    CHANGES[change](log)
    diagnosis = diagnose(open_path(copy), load_rules())
    reasons = {rule.rule: rule.reason for rule in diagnosis.not_measured}
    assert "compile log is damaged" in reasons["GD101"]
    assert "compile log is damaged" in reasons["GD102"]


def test_a_damaged_cache_is_made_anew(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(recording, copy)
    before = diagnose(open_path(copy), load_rules())
    for table in (copy / "profile").glob("*.parquet"):
        table.write_bytes(b"x")
    assert diagnose(open_path(copy), load_rules()) == before
    (copy / "profile" / "facts.json").write_text(json.dumps([1]))
    assert diagnose(open_path(copy), load_rules()) == before
