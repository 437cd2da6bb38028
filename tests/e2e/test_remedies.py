"""Each certain remedy: its diff applies with `git apply`, the patched script runs, and its own finding is gone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.engine.rulefile import load_rules
from tests.e2e.conftest import SAMPLES, Checked, gpudoctor
from tests.e2e.scripts_to_fix import (
    ACCUMULATING,
    ANOMALY,
    EMPTIED_CACHE,
    LAST_BATCH,
    LOOPED_ADAMAX,
    NO_SYMBOLS,
    RECOMPILE_LIMIT,
    RUNNING_LOSS,
    SLOW_READS,
    TEACHER,
)

CERTAIN: dict[tuple[str, str], str | Path] = {
    ("GD102", "drop_last"): LAST_BATCH,
    ("GD102", "dynamic"): SAMPLES / "recompile-shape" / "train.py",
    ("GD102", "mark_dynamic"): NO_SYMBOLS,
    ("GD104", "dynamic"): RECOMPILE_LIMIT,
    ("GD203", "fused"): SAMPLES / "unfused-optimizer" / "train.py",
    ("GD203", "foreach"): LOOPED_ADAMAX,
    ("GD204", "sdpa"): SAMPLES / "unfused-attention" / "train.py",
    ("GD209", "sparse"): SAMPLES / "dense-embedding-gradient" / "train.py",
    ("GD301", "defer"): RUNNING_LOSS,
    ("GD304", "on_device"): SAMPLES / "recreated-constant" / "train.py",
    ("GD306", "collect_less"): SAMPLES / "explicit-synchronize" / "train.py",
    ("GD306", "keep_cache"): EMPTIED_CACHE,
    ("GD404", "dedent"): SAMPLES / "autocast-around-backward" / "train.py",
    ("GD409", "no_bias"): SAMPLES / "conv-bias-before-norm" / "train.py",
    ("GD505", "drop"): SAMPLES / "grads-zeroed-not-dropped" / "train.py",
    ("GD601", "workers"): SLOW_READS,
    ("GD603", "persistent"): SAMPLES / "workers-respawned" / "train.py",
    ("GD702", "frozen"): TEACHER,
    ("GD702", "no_grad"): SAMPLES / "graph-never-used" / "train.py",
    ("GD703", "no_sync"): ACCUMULATING,
    ("GD704", "anomaly"): ANOMALY,
}
"""Remedies that make a diff, each with a script that needs it."""

ONLY_ON_A_GPU = {("GD302", "pin"), ("GD306", "drop"), ("GD401", "high"), ("GD602", "pin")}
"""Remedies of findings that a CPU run does not have; tests/engine and the rules' examples make their diffs."""

each_remedy = pytest.mark.parametrize(
    ("rule", "remedy"), [pytest.param(*pair, marks=pytest.mark.xdist_group("-".join(pair))) for pair in CERTAIN]
)


def text_of(script: str | Path) -> str:
    return script.read_text(encoding="utf-8") if isinstance(script, Path) else script


def to_fix(run: Checked, rule: str, remedy: str) -> dict[str, Any]:
    """The finding whose remedy that is."""
    assert run.code == 0, run.err
    found = [finding for finding in run.findings(rule) if finding["remedy"]["name"] == remedy]
    assert found, run.diagnosis["findings"]
    return found[0]


def applied(text: str, diff: str, folder: Path) -> str:
    """The text after `git apply` in a repository that has it."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "train.py"), (*identity, "commit", "-qm", "before")):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=folder, check=True, timeout=60)
    return (folder / "train.py").read_text(encoding="utf-8")


def test_each_remedy_that_makes_a_diff_is_tested() -> None:
    remedies = {
        (rule.id, name) for rule in load_rules(()) for name, one in rule.remedies.items() if one.edit is not None
    }
    assert remedies == CERTAIN.keys() | ONLY_ON_A_GPU


@each_remedy
def test_the_diff_applies_and_the_patched_script_runs_without_the_finding(
    rule: str, remedy: str, check: Callable[..., Checked], tmp_path: Path
) -> None:
    script = CERTAIN[rule, remedy]
    before = check(script)
    diff = to_fix(before, rule, remedy)["remedy"]["diff"]
    assert diff, "no diff was offered"
    after = check(applied(text_of(script), diff, tmp_path))
    assert after.code == 0, after.err
    assert after.diagnosis["run"]["steps"] > 0
    assert len(after.findings(rule)) == len(before.findings(rule)) - 1


def test_fix_applies_what_check_found(check: Callable[..., Checked], tmp_path: Path) -> None:
    run = check(SAMPLES / "grads-zeroed-not-dropped" / "train.py")
    folder = shutil.copytree(run.folder, tmp_path / "run", symlinks=True)
    before = (folder / "train.py").read_text(encoding="utf-8")
    shown = gpudoctor("fix", cwd=folder)
    assert shown.code == 0
    assert shown.out == run.findings("GD505")[0]["remedy"]["diff"]
    assert (folder / "train.py").read_text(encoding="utf-8") == before
    done = gpudoctor("fix", "--apply", cwd=folder)
    assert done.code == 0
    assert "1 fix applied to 1 file" in done.err
    assert (folder / "train.py").read_text(encoding="utf-8") == before.replace("(set_to_none=False)", "()")
    assert gpudoctor("fix", "--apply", cwd=folder).code == 2
