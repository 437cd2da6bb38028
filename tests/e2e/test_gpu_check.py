"""`make gpu-check`, its whole way on the CPU with one quick sample."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import SAMPLES, environment

SAMPLE = "grads-zeroed-not-dropped"


def test_a_sample_and_its_twin_are_recorded_and_judged(tmp_path: Path) -> None:
    script = SAMPLES.parent / "scripts" / "gpu_check.py"
    command = [sys.executable, str(script), "--allow-cpu", "--only", SAMPLE, "--output", str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    facts = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    (verdict,) = facts["samples"]
    if facts["device"] == "cpu":
        assert (verdict["found"], verdict["located"]) == (True, True), done.stderr
    assert done.returncode == bool(verdict["misses"])
    assert verdict["step_ns"] > 0
    assert f"| {SAMPLE} | GD505 |" in done.stdout
    for name in ("train", "train_fixed"):
        assert (tmp_path / SAMPLE / name / ".gpudoctor" / "latest" / "recording.json").is_file()
