"""Runs `gpudoctor check` once a script for all workers: a recording takes seconds and many tests look at it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from filelock import FileLock

from gpudoctor.api import load
from gpudoctor.profile import Profile

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@dataclass(frozen=True)
class Checked:
    """One finished `gpudoctor check --output-format json`."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def diagnosis(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded

    @property
    def recording(self) -> Path:
        return (self.folder / ".gpudoctor" / "latest").resolve()

    @property
    def unstable(self) -> bool:
        """Whether other work on the machine disturbed the times."""
        return any("unstable" in note for note in self.diagnosis["run"]["integrity"])

    @property
    def profile(self) -> Profile:
        return load(self.recording)

    def table(self, name: str) -> pd.DataFrame:
        return self.profile.table(name)

    def phases(self) -> list[set[str]]:
        """The phases of the operators of each profiled step."""
        return [set(phases) for _, phases in self.table("ops").groupby("step")["phase"]]

    def findings(self, rule: str) -> list[dict[str, Any]]:
        return [finding for finding in self.diagnosis["findings"] if finding["rule"] == rule]


def environment() -> dict[str, str]:
    """One thread: the tests judge what is found, and two busy processes on two cores would only be slower."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def hears_ctrl_c() -> None:
    """For `preexec_fn`: a shell's background job has SIGINT ignored, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def gpudoctor(*words: str, cwd: Path, timeout: float = 240) -> Checked:
    run = subprocess.run(
        [sys.executable, "-m", "gpudoctor", *words],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Checked(run.returncode, run.stdout, run.stderr, cwd)


def checker(folders: pytest.TempPathFactory, *fixed: str) -> Callable[..., Checked]:
    """`check(source, *options, script_args=())`: checks a script's text or path, once for equal arguments.

    The runs lie in a folder that all workers share, each under the hash of what was asked, with what it printed.
    """
    base = folders.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "checked"
    shared.mkdir(exist_ok=True)

    def run(source: str | Path, *options: str, script_args: tuple[str, ...] = ()) -> Checked:
        name = source.name if isinstance(source, Path) else "train.py"
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
        tail = ("--", *script_args) if script_args else ()
        asked = json.dumps([name, text, fixed, options, tail])
        folder = shared / hashlib.sha256(asked.encode()).hexdigest()[:16]
        done = folder.with_suffix(".json")
        with FileLock(f"{folder}.lock"):
            if not done.exists():
                folder.mkdir()
                (folder / name).write_text(text, encoding="utf-8")
                made = gpudoctor("check", "--output-format", "json", *fixed, *options, name, *tail, cwd=folder)
                done.write_text(json.dumps([made.code, made.out, made.err]), encoding="utf-8")
        code, out, err = json.loads(done.read_text(encoding="utf-8"))
        return Checked(code, out, err, folder)

    return run


@pytest.fixture(scope="session")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checked]:
    """`checker` without the what-if, which takes a second or two and has tests of its own."""
    return checker(tmp_path_factory, "--no-what-if")
