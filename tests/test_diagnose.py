"""What a diagnosis says about the run as a whole: verdict, unstable timing, nothing to judge."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.cli.options import exit_code
from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.profile import Profile, frame
from gpudoctor.reporters import console, html
from gpudoctor.reporters.wording import unjudged


def collecting(**facts: Any) -> Profile:
    """A profile in which a `gc.collect()` by hand (GD306) owns 3 ms of each step of 10."""
    steps = [
        {
            "step": i,
            "start_ns": i * 10_000_000,
            "dur_ns": 10_000_000,
            "observation": "detail" if i in (2, 3) else "bare",
            "warmup": i < 2,
        }
        for i in range(12)
    ]
    calls = [
        {
            "step": i,
            "call_name": "gc.collect",
            "start_ns": i * 10_000_000 + 5_000_000,
            "dur_ns": 3_000_000,
            "file": "train.py",
            "line": 7,
            "by_user": True,
            "timed": False,
        }
        for i in range(12)
    ]
    ops = [
        {"op": i, "name": "aten::mm", "step": step, "start_ns": step * 10_000_000, "dur_ns": 1_000_000, "thread": 1,
         "depth": 0, "observation": "detail", "phase": "forward"}
        for i, step in enumerate((2, 3))
    ]  # fmt: skip
    known = {"steps": 12, "step_ns": 10_000_000, "step_spread_ns": 100_000, "profiled_step_ns": 11_000_000, **facts}
    tables = {
        "steps": frame("steps", steps),
        "ops": frame("ops", ops),
        "explicit_calls": frame("explicit_calls", calls),
    }
    return Profile(tables, known)


def test_a_steady_run_is_judged_by_its_times() -> None:
    diagnosis = diagnose(collecting(), load_rules())
    (finding,) = diagnosis.findings
    assert (finding.rule, finding.severity) == ("GD306", "error")
    assert diagnosis.run.integrity == ()
    assert str(finding.where) == "train.py:7"


@pytest.mark.parametrize(
    "facts",
    [{"step_spread_ns": 4_000_000}, {"profiled_step_ns": 60_000_000}, {"profiled_step_ns": 2_000_000}],
)
def test_unstable_timing_is_said_and_makes_no_error(facts: dict[str, int]) -> None:
    diagnosis = diagnose(collecting(**facts), load_rules())
    assert [finding.severity for finding in diagnosis.findings] == ["warning"]
    assert "timing is unstable" in diagnosis.run.integrity[0]


@pytest.mark.parametrize(
    ("cpu_ns", "delay_ns", "said"),
    [
        (5.0e9, 15.0e9, ["the main thread got 25 % of a core"]),  # beside three others
        (5.0e9, 0.2e9, []),  # it slept, or waited for a disk or a loader
        (0.1e9, 0.3e9, []),  # it hardly wanted a core
    ],
)
def test_a_main_thread_that_waits_for_a_core_makes_the_timing_unstable(
    cpu_ns: float, delay_ns: float, said: list[str]
) -> None:
    profile = collecting()
    readings = {"wall_ns": 21e9, "main_thread_cpu_ns": cpu_ns, "main_thread_delay_ns": delay_ns}
    host = frame("host", [{"name": name, "device": None, "value": value} for name, value in readings.items()])
    diagnosis = diagnose(
        Profile(
            {name: profile.table(name) for name in ("steps", "ops", "explicit_calls")} | {"host": host}, profile.facts
        ),
        load_rules(),
    )
    assert all(words in note for words, note in zip(said, diagnosis.run.integrity, strict=True))
    assert [finding.severity for finding in diagnosis.findings] == ["warning" if said else "error"]


def test_nothing_judged_is_inconclusive_not_clean() -> None:
    diagnosis = diagnose(Profile({}, {"steps": 3, "step_ns": 5_000_000}), load_rules())
    assert "No rule could be judged" in diagnosis.verdict
    assert exit_code(diagnosis, Config()) == 4


def test_without_steps_nothing_passes() -> None:
    empty = {name: frame(name, []) for name in ("steps", "graph_breaks", "recompiles")}
    diagnosis = diagnose(Profile(empty, {"steps": 0}), load_rules())
    assert diagnosis.passed == ()
    assert diagnosis.verdict.startswith("Inconclusive")
    (group,) = unjudged(diagnosis)  # one reason, one line
    assert group.reason == "no training step was seen"
    assert len(group.rules) == len(load_rules())
    assert "not measured  every rule: no training step was seen; let the script" in console.render(diagnosis)


@pytest.mark.parametrize(("code", "said"), [(1, "failed with exit code 1"), (-9, "was killed by signal 9")])
def test_a_failed_script_is_said_in_every_report(code: int, said: str) -> None:
    diagnosis = diagnose(collecting(script_exit=code), load_rules())
    page = re.sub(r"<[^>]+>", "", html.render(diagnosis))
    for text in (console.render(diagnosis), page):
        assert f"the script {said}" in " ".join(text.split())
        assert f"the script {said}; this is what was seen until then" in " ".join(text.split())
    for ended in (0, None):
        assert "until then" not in console.render(diagnose(collecting(script_exit=ended), load_rules()))


def test_a_comment_that_excuses_no_rule_is_noted_once_with_the_closest_name() -> None:
    source = "x = 1  # gpudoctor: ignore[GD301] fine\ny = 2  # gpudoctor: ignore[GD5005]\nz = 3  # gpudoctor: ignore\n"
    given = replace(collecting(), sources={"train.py": source + "w = '# gpudoctor: ignore[GD0]'\n"})
    (note,) = diagnose(given, load_rules()).run.integrity
    assert note == "train.py:2: `gpudoctor: ignore[GD5005]` names no rule; did you mean 'GD505'?"


def test_the_budget_names_how_its_step_was_profiled() -> None:
    given = collecting()
    shares = [{"step": step, "owner": "python", "dur_ns": 10_000_000} for step in (2, 3)]
    given = replace(given, tables={**given.tables, "step_budget": frame("step_budget", shares)})
    for facts, said in (({}, "detailed profiler"), ({"trace": "t.json"}, "as recorded")):
        diagnosis = diagnose(replace(given, facts={**given.facts, **facts}), load_rules())
        text = console.render(diagnosis)
        assert f"step 2, 10.0 ms on the main thread, {said}" in " ".join(text.split())
        assert "light profiler" not in text.partition("Where the time goes")[2]
        assert "One profiled step" in text
