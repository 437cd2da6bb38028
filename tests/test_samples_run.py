"""The samples: each script and its healthy twin runs by itself, and what expected.toml says about them is true."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
FOLDERS = sorted(path.parent for path in SAMPLES.glob("*/expected.toml"))
SCRIPTS = [folder / name for folder in FOLDERS for name in ("train.py", "train_fixed.py")]

each_sample = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def expected(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[str, Any]]:
    """The exit code of each script run by itself, and what it printed."""
    out = tmp_path_factory.mktemp("samples")
    command = [sys.executable, "-m", "tests.run_scripts", str(out), *map(str, SCRIPTS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=SAMPLES.parent, env=environment, check=True)
    texts = [(out / f"{number}.json").read_text(encoding="utf-8") for number in range(len(SCRIPTS))]
    return dict(zip(SCRIPTS, map(json.loads, texts), strict=True))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}-{script.stem}")
def test_a_sample_runs_by_itself(script: Path, runs: dict[Path, dict[str, Any]]) -> None:
    assert runs[script]["code"] == 0, runs[script]["printed"]
    assert runs[script]["printed"].strip()


@each_sample
def test_the_planted_line_is_not_in_the_twin(folder: Path) -> None:
    facts = expected(folder)
    lines = (folder / facts["file"]).read_text(encoding="utf-8").splitlines()
    twin = (folder / "train_fixed.py").read_text(encoding="utf-8").splitlines()
    planted = lines[facts.get("planted", facts["line"]) - 1]
    taken = [change[2:] for change in difflib.ndiff(lines, twin) if change.startswith("- ")]
    assert planted.strip()
    assert lines != twin
    assert planted in taken or not taken  # a twin may only say more: `@torch.no_grad()`, a keyword on its own line
    assert all(lines[number - 1].strip() for number in facts.get("also", []))


@each_sample
def test_the_sample_names_a_rule_that_exists(folder: Path) -> None:
    facts = expected(folder)
    assert facts["name"] == folder.name
    assert (SAMPLES.parent / "rules" / f"{facts['rule']}-{facts['name']}.md").is_file()
    assert facts["shows"]


@each_sample
def test_the_table_of_samples_lists_it(folder: Path) -> None:
    table = (SAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"| [{folder.name}]({folder.name}/train.py) | {expected(folder)['rule']} |" in table
