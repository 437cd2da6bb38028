"""`gpudoctor report`: the page again, of whatever was recorded, with or without the user's source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.shared_traces import shared_trace

from .conftest import SAMPLES, Checked, gpudoctor


def test_a_recording_gets_its_page_again_and_without_source_no_line_of_the_script(
    check: Callable[..., Checked], tmp_path: Path
) -> None:
    run = check(SAMPLES / "host-sync" / "train.py")
    culprit = run.findings("GD301")[0]["excerpt"][0]["text"].strip()
    whole, bare = tmp_path / "whole.html", tmp_path / "bare.html"
    assert gpudoctor("report", str(run.recording), "-o", str(whole), cwd=tmp_path).out == f"{whole}\n"
    assert gpudoctor("report", str(run.recording), "--no-source", "-o", str(bare), cwd=tmp_path).code == 0
    assert culprit and culprit in whole.read_text(encoding="utf-8")
    page = bare.read_text(encoding="utf-8")
    assert culprit not in page and "GD301" in page and "train.py:57" in page
    assert 'id="timeline-data"' in page


def test_a_diagnosis_in_json_gets_a_page_that_says_why_it_has_no_timeline(
    check: Callable[..., Checked], tmp_path: Path
) -> None:
    run = check(SAMPLES / "host-sync" / "train.py")
    page = tmp_path / "page.html"
    assert gpudoctor("report", str(run.recording / "diagnosis.json"), "-o", str(page), cwd=tmp_path).code == 0
    assert "has no timeline" in page.read_text(encoding="utf-8")


def test_other_inputs_get_a_page_in_the_working_folder(tmp_path: Path) -> None:
    trace = shared_trace("hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz")
    done = gpudoctor("report", str(trace), cwd=tmp_path)
    assert (tmp_path / done.out.strip()).is_file() and done.out == f"{trace.name}.html\n"


def test_nothing_there_is_one_error(tmp_path: Path) -> None:
    done = gpudoctor("report", str(tmp_path / "gone"), cwd=tmp_path)
    assert done.code == 2 and "no such file or folder" in done.err
