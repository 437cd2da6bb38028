"""Each certain remedy: its diff applies with `git apply`, the patched script runs, and its own finding is gone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import patching
from gpudoctor.diagnosis import from_json
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.fix import plan
from tests.e2e.conftest import Checked, gpudoctor
from tests.e2e.scripts_to_fix import ACCUMULATING, ATTENTIVE, COMPILED, CONVOLVED, EAGER, GROWING, SLOW_READS

CERTAIN: dict[tuple[str, str], str] = {
    ("GD102", "drop_last"): COMPILED,
    ("GD102", "dynamic"): COMPILED,
    ("GD102", "mark_dynamic"): COMPILED,
    ("GD104", "dynamic"): COMPILED,
    ("GD203", "fused"): CONVOLVED,
    ("GD203", "foreach"): EAGER,
    ("GD204", "sdpa"): ATTENTIVE,
    ("GD209", "sparse"): ATTENTIVE,
    ("GD301", "defer"): EAGER,
    ("GD304", "on_device"): CONVOLVED,
    ("GD306", "collect_less"): SLOW_READS,
    ("GD306", "keep_cache"): EAGER,
    ("GD404", "dedent"): CONVOLVED,
    ("GD409", "no_bias"): CONVOLVED,
    ("GD504", "detach"): GROWING,
    ("GD505", "drop"): EAGER,
    ("GD601", "workers"): SLOW_READS,
    ("GD603", "persistent"): ATTENTIVE,
    ("GD702", "frozen"): EAGER,
    ("GD702", "no_grad"): CONVOLVED,
    ("GD703", "no_sync"): ACCUMULATING,
    ("GD704", "anomaly"): EAGER,
}
"""Remedies that make a diff, each with a script that needs it. What a script is here for is all repaired at once:
two recordings a script."""

ONLY_ON_A_GPU = {("GD302", "pin"), ("GD306", "drop"), ("GD401", "high"), ("GD602", "pin")}
"""Remedies of findings that a CPU run does not have; tests/engine and the rules' examples make their diffs."""


each_remedy = pytest.mark.parametrize(
    ("rule", "remedy"),
    [pytest.param(*pair, marks=pytest.mark.xdist_group(str(len(script)))) for pair, script in CERTAIN.items()],
)


def remedies(run: Checked, rule: str, remedy: str) -> list[dict[str, Any]]:
    """The findings with that remedy."""
    assert run.code == 0, run.err
    return [finding for finding in run.findings(rule) if finding["remedy"]["name"] == remedy]


def repaired(run: Checked, script: str) -> str:
    """The script with all remedies made that it is here for, as one patch."""
    pairs = {pair for pair, one in CERTAIN.items() if one is script}
    found = plan(
        from_json(run.out),
        load_rules(()),
        lambda name: patching.read(run.folder, name),
        chosen=lambda one: one.remedy is not None and (one.rule, one.remedy.name) in pairs,
    )
    assert not found.left
    (patch,) = found.patches
    return patch.after


def git_applies(text: str, diff: str, folder: Path) -> None:
    """Asks `git apply` for a diff, in a repository that holds the text."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    for words in (("init", "-q"), ("add", "train.py"), ("apply", "--index", "-")):
        subprocess.run(["git", *words], input=diff.encode(), cwd=folder, check=True, timeout=60)


def test_each_remedy_that_makes_a_diff_is_tested() -> None:
    certain = {
        (rule.id, name) for rule in load_rules(()) for name, one in rule.remedies.items() if one.edit is not None
    }
    assert certain == CERTAIN.keys() | ONLY_ON_A_GPU


@each_remedy
def test_the_diff_applies_and_the_patched_script_runs_without_the_finding(
    rule: str, remedy: str, check: Callable[..., Checked], tmp_path: Path
) -> None:
    script = CERTAIN[rule, remedy]
    before = check(script)
    own = remedies(before, rule, remedy)
    assert own, before.diagnosis["findings"]
    for number, finding in enumerate(own):
        assert finding["remedy"]["diff"], "no diff was offered"
        (tmp_path / str(number)).mkdir()
        git_applies(script, finding["remedy"]["diff"], tmp_path / str(number))
    after = check(repaired(before, script))
    assert after.code == 0, after.err
    assert after.diagnosis["run"]["steps"] > 0
    assert not remedies(after, rule, remedy)


def test_fix_applies_what_check_found(check: Callable[..., Checked], tmp_path: Path) -> None:
    run = check(EAGER)
    folder = shutil.copytree(run.folder, tmp_path / "run", symlinks=True)
    before = (folder / "train.py").read_text(encoding="utf-8")
    shown = gpudoctor("fix", "--rule", "GD505", cwd=folder)
    assert shown.code == 0
    assert shown.out == run.findings("GD505")[0]["remedy"]["diff"]
    assert (folder / "train.py").read_text(encoding="utf-8") == before
    done = gpudoctor("fix", "--rule", "GD505", "--apply", cwd=folder)
    assert done.code == 0
    assert "1 fix applied to 1 file" in done.err
    assert (folder / "train.py").read_text(encoding="utf-8") == before.replace("(set_to_none=False)", "()")
    assert gpudoctor("fix", "--rule", "GD505", "--apply", cwd=folder).code == 2
