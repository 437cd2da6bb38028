"""docs/diagnosis.schema.json is what the code says, and its check notices when it is not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from gpudoctor.diagnosis import Diagnosis, Run, to_json

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("diagnosis_schema", ROOT / "scripts" / "diagnosis_schema.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_published_schema_is_up_to_date(script: ModuleType) -> None:
    assert script.main(["--check"]) == 0


def test_the_check_fails_on_another_text_and_on_a_missing_file(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schema.json"
    assert script.main(["--check", "--path", str(path)]) == 1
    path.write_text("{}\n", encoding="utf-8")
    assert script.main(["--check", "--path", str(path)]) == 1
    assert "make docs" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "{}\n"


def test_what_it_writes_passes_its_own_check(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    assert script.main(["--path", str(path)]) == 0
    assert script.main(["--check", "--path", str(path)]) == 0


def test_a_diagnosis_has_the_properties_that_the_schema_declares() -> None:
    schema = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text(encoding="utf-8"))
    declared = schema["$defs"]["Diagnosis"]["properties"]
    assert set(json.loads(to_json(Diagnosis(run=Run(script="train.py"))))) == set(declared)
