"""The Makefile explains itself and refuses a Python that is missing or too old before it changes anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    if program is None:
        pytest.skip("there is no make on PATH")
    command = [program, "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("help",)])
def test_help_is_the_default_and_lists_the_targets(arguments: tuple[str, ...]) -> None:
    done = make(*arguments)
    assert done.returncode == 0
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"demo", "test", "check", "gpu-check", "screenshot", "clean", "help"} <= listed


@pytest.mark.parametrize("version", ["3.10.14", None])
def test_an_old_or_missing_python_stops_with_one_clear_message(tmp_path: Path, version: str | None) -> None:
    python = tmp_path / "python"
    if version is not None:
        python.write_text(f'#!/bin/sh\ncase "$1" in --version) echo "Python {version}";; *) exit 1;; esac\n')
        python.chmod(0o755)
    venv = tmp_path / "venv"
    done = make("demo", f"PYTHON={python}", f"VENV={venv}")
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stderr
    assert version is None or version in done.stderr
    assert not venv.exists()
