"""Each sample's problem is found on its line; its healthy twin has no warning at all."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.engine.rulefile import load_rules
from tests.e2e.conftest import SAMPLES, Checked
from tests.memory import pairs as snapshots
from tests.synthetic.programs import pairs

NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/expected.toml"))

each_sample = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in NAMES])
"""Any worker may take any sample; one takes all tests of it."""


def expected(name: str) -> dict[str, Any]:
    return tomllib.loads((SAMPLES / name / "expected.toml").read_text(encoding="utf-8"))


def places(finding: dict[str, Any]) -> list[tuple[str, int]]:
    spots = [finding["where"], *finding["locations"][:3]]
    return [(Path(spot["file"]).name, spot["line"]) for spot in spots if spot]


def test_each_stable_rule_has_a_sample_or_what_only_a_gpu_shows_a_synthetic_pair() -> None:
    rules = {rule.id for rule in load_rules(()) if rule.status == "stable"}
    sampled = {expected(name)["rule"] for name in NAMES}
    assert sampled <= rules
    assert rules - sampled <= {*pairs.PAIRS, *snapshots.PAIRS}


@each_sample
def test_the_planted_problem_is_found_on_its_line(name: str, check: Callable[..., Checked]) -> None:
    want = expected(name)
    run = check(SAMPLES / name / "train.py")
    assert run.code == 0, run.err
    found = run.findings(want["rule"])
    assert found, run.diagnosis["findings"]
    assert (want["file"], want["line"]) in [place for finding in found for place in places(finding)]


@each_sample
def test_nothing_else_is_warned_about(name: str, check: Callable[..., Checked]) -> None:
    loud = [f for f in check(SAMPLES / name / "train.py").diagnosis["findings"] if f["severity"] != "info"]
    assert {finding["rule"] for finding in loud} <= {expected(name)["rule"], *expected(name).get("together", [])}


@each_sample
def test_the_healthy_twin_has_no_warning(name: str, check: Callable[..., Checked]) -> None:
    run = check(SAMPLES / name / "train_fixed.py")
    assert run.code == 0, run.err
    found = run.diagnosis["findings"]
    assert [finding["rule"] for finding in found if finding["severity"] != "info"] == []
    assert expected(name)["rule"] not in [finding["rule"] for finding in found]
    assert expected(name)["rule"] in [rule["rule"] for rule in run.diagnosis["passed"]]
    assert run.diagnosis["run"]["step_ns"] is not None
    assert [note for note in run.diagnosis["run"]["integrity"] if "unstable" not in note] == []


@each_sample
def test_rules_that_need_a_gpu_are_not_measured_and_say_how_to_get_them(
    name: str, check: Callable[..., Checked]
) -> None:
    missing = {rule["rule"]: rule for rule in check(SAMPLES / name / "train.py").diagnosis["not_measured"]}
    for rule in ("GD303", "GD401"):
        assert "GPU" in missing[rule]["reason"]
        assert "machine with a GPU" in missing[rule]["how"]


def test_the_budget_adds_up_to_its_step_exactly(check: Callable[..., Checked]) -> None:
    budget = check(SAMPLES / "host-sync" / "train.py").diagnosis["budget"]
    assert sum(share["ns"] for share in budget["shares"]) == budget["step_ns"]


def test_the_diff_of_a_certain_remedy_is_offered(check: Callable[..., Checked]) -> None:
    (finding,) = check(SAMPLES / "grads-zeroed-not-dropped" / "train.py").findings("GD505")
    assert "-        self.optimizer.zero_grad(set_to_none=False)\n" in finding["remedy"]["diff"]


def test_the_report_lies_beside_the_recording_and_shows_the_line(check: Callable[..., Checked]) -> None:
    run = check(SAMPLES / "graph-break" / "train.py")
    page = (run.recording / "report.html").read_text(encoding="utf-8")
    assert f"train.py:{expected('graph-break')['line']}" in page
    assert (run.recording / "diagnosis.json").read_text(encoding="utf-8") == run.out
