"""gpu-check judges made-up diagnoses rightly, and runs nothing where there is no GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "gpu_check.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def finding(rule: str = "GD505", line: int = 9, severity: str = "warning", file: str = "train.py") -> dict[str, Any]:
    return {"rule": rule, "severity": severity, "where": {"file": file, "line": line}, "locations": []}


def diagnosis(*findings: dict[str, Any], passed: tuple[str, ...] = (), device: str | None = "A GPU") -> dict[str, Any]:
    return {
        "findings": list(findings),
        "passed": [{"rule": rule} for rule in passed],
        "not_measured": [{"rule": "GD303", "reason": "no copies were seen"}],
        "run": {"device": device, "step_ns": 2_500_000},
    }


SICK, TWIN = diagnosis(finding()), diagnosis(passed=("GD505",))


def verdict(
    script: ModuleType,
    sick: Any = SICK,
    twin: Any = TWIN,
    *,
    codes: tuple[int, int] = (0, 0),
    on: str = "gpu",
    **want: Any,
) -> Any:
    facts = {"sample": "one", "rule": "GD505", "file": "train.py", "line": 9, **want}
    ran = (script.Ran(code, made) for code, made in zip(codes, (sick, twin), strict=True))
    return script.judge(script.Expected(**facts), *ran, on)


def test_a_problem_found_on_its_line_and_a_silent_twin_are_as_expected(script: ModuleType) -> None:
    one = verdict(script)
    assert (one.expected, one.found, one.located, one.twin_silent, one.step_ns) == (True, True, True, True, 2_500_000)
    assert one.misses == ()


@pytest.mark.parametrize(
    ("given", "miss"),
    [
        ({"sick": diagnosis()}, "GD505 not found"),
        ({"sick": diagnosis(), "rule": "GD303"}, "GD303 not found (not measured: no copies were seen)"),
        ({"sick": diagnosis(finding(line=8))}, "GD505 not at train.py:9"),
        ({"sick": diagnosis(finding(file="other.py"))}, "GD505 not at train.py:9"),
        ({"sick": diagnosis(finding(), finding("GD401"))}, "train.py also has GD401"),
        ({"twin": diagnosis(finding(severity="info"))}, "the twin has GD505"),
        ({"twin": diagnosis(finding("GD401"), passed=("GD505",))}, "the twin has GD401"),
        ({"twin": diagnosis()}, "the twin did not pass GD505"),
        ({"sick": None, "codes": (3, 0)}, "train.py: no diagnosis (exit code 3)"),
        ({"twin": None, "codes": (0, 3)}, "train_fixed.py: no diagnosis (exit code 3)"),
        ({"codes": (4, 0)}, "train.py: exit code 4"),
        ({"sick": diagnosis(finding(), device="CPU")}, "train.py: recorded on CPU, not on a GPU"),
        ({"sick": diagnosis(finding(), device=None)}, "train.py: recorded on None, not on a GPU"),
        ({"device": "cpu"}, "GD505 found on a GPU"),
    ],
)
def test_anything_else_is_a_miss_with_its_reason(script: ModuleType, given: dict[str, Any], miss: str) -> None:
    assert miss in verdict(script, **given).misses


def test_an_info_of_another_rule_and_a_rule_of_the_same_problem_are_no_miss(script: ModuleType) -> None:
    sick = diagnosis(finding(), finding("GD401", severity="info"), finding("GD103"))
    twin = diagnosis(finding("GD401", severity="info"), passed=("GD505",))
    assert verdict(script, sick, twin, together=("GD103",)).misses == ()


def test_a_problem_that_shows_only_on_a_cpu_is_to_be_silent_on_a_gpu(script: ModuleType) -> None:
    one = verdict(script, diagnosis(), diagnosis(), device="cpu")
    assert (one.expected, one.found, one.misses) == (False, False, ())


def test_a_run_that_gave_no_diagnosis_is_not_silent(script: ModuleType) -> None:
    one = verdict(script, twin=None)
    assert not one.twin_silent
    assert one.twin_step_ns is None


def test_the_table_has_a_row_for_each_sample(script: ModuleType) -> None:
    rows = script.table([verdict(script), verdict(script, sick=diagnosis())]).splitlines()
    assert rows[2] == "| one | GD505 | yes | yes | yes | yes | 2.50 ms | 2.50 ms |  |"
    assert rows[3] == "| one | GD505 | yes | no | no | yes | 2.50 ms | 2.50 ms | GD505 not found |"


def test_without_a_gpu_nothing_runs_and_the_message_says_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script.main(["--output", str(tmp_path)]) == 2
    assert "no GPU" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_sample_that_does_not_exist_is_named(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--only", "no-such-thing"]) == 2
    assert "no sample named no-such-thing" in capsys.readouterr().err


@pytest.mark.parametrize(("missed", "code"), [(False, 0), (True, 1)])
def test_the_exit_code_says_whether_something_was_missed(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missed: bool, code: int
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def ran(path: Path, folder: Path) -> Any:
        folder.mkdir(parents=True)
        if path.stem == "train_fixed":
            return script.Ran(0, TWIN)
        return script.Ran(0, diagnosis() if missed else diagnosis(finding(line=49)))

    monkeypatch.setattr(script, "run_check", ran)
    assert script.main(["--only", "grads-zeroed-not-dropped", "--output", str(tmp_path)]) == code
    assert (tmp_path / "summary.json").is_file()
    assert "GD505" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_every_expected_toml_can_be_read(script: ModuleType) -> None:
    assert {script.expected_of(folder).device for folder in script.chosen([])} <= {None, "cpu", "gpu"}
