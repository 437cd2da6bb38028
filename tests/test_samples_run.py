"""The samples: each script and its healthy twin runs by itself, and what expected.toml says about them is true."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
FOLDERS = sorted(path.parent for path in SAMPLES.glob("*/expected.toml"))
SCRIPTS = [folder / name for folder in FOLDERS for name in ("train.py", "train_fixed.py")]

each_sample = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def expected(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))


def run(script: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script.name]
    return subprocess.run(command, cwd=script.parent, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def runs() -> dict[Path, Future[subprocess.CompletedProcess[str]]]:
    """All scripts, two at a time: each spends its first seconds importing torch on one core."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return {script: pool.submit(run, script) for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}-{script.stem}")
def test_a_sample_runs_by_itself(script: Path, runs: dict[Path, Future[subprocess.CompletedProcess[str]]]) -> None:
    done = runs[script].result()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@each_sample
def test_the_planted_line_exists_and_is_not_in_the_twin(folder: Path) -> None:
    facts = expected(folder)
    lines = (folder / facts["file"]).read_text(encoding="utf-8").splitlines()
    planted = lines[facts.get("planted", facts["line"]) - 1].strip()
    twin = (folder / "train_fixed.py").read_text(encoding="utf-8").splitlines()
    assert planted
    assert planted not in [line.strip() for line in twin]
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
