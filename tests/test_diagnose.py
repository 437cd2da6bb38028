"""What a diagnosis says about the run as a whole: verdict, unstable timing, nothing to judge."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.cli.options import exit_code
from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.profile import Profile, frame


def zero_fills(**facts: Any) -> Profile:
    """A profile in which GD505 owns 3 ms of each step."""
    steps = [
        {"step": i, "dur_ns": 10_000_000, "observation": "detail" if i in (2, 3) else "bare", "warmup": i < 2}
        for i in range(12)
    ]
    ops = [
        {
            "op": i,
            "name": "aten::_foreach_zero_",
            "step": step,
            "dur_ns": 3_000_000,
            "observation": "detail",
            "phase": "optimizer",
            "file": "train.py",
            "line": 7,
            "precision": "call",
            "caller_function": "zero_grad",
            "owner": "torch.optim",
        }
        for i, step in enumerate((2, 3))
    ]
    known = {"steps": 12, "step_ns": 10_000_000, "step_spread_ns": 100_000, "profiled_step_ns": 11_000_000, **facts}
    return Profile({"steps": frame("steps", steps), "ops": frame("ops", ops)}, known)


def test_a_steady_run_is_judged_by_its_times() -> None:
    diagnosis = diagnose(zero_fills(), load_rules())
    (finding,) = diagnosis.findings
    assert (finding.rule, finding.severity) == ("GD505", "error")
    assert diagnosis.run.integrity == ()
    assert str(finding.where) == "train.py:7"


@pytest.mark.parametrize(
    "facts",
    [{"step_spread_ns": 4_000_000}, {"profiled_step_ns": 60_000_000}, {"profiled_step_ns": 2_000_000}],
)
def test_unstable_timing_is_said_and_makes_no_error(facts: dict[str, int]) -> None:
    diagnosis = diagnose(zero_fills(**facts), load_rules())
    assert [finding.severity for finding in diagnosis.findings] == ["warning"]
    assert "timing is unstable" in diagnosis.run.integrity[0]


def test_nothing_judged_is_inconclusive_not_clean() -> None:
    diagnosis = diagnose(Profile({}, {"steps": 3, "step_ns": 5_000_000}), load_rules())
    assert "No rule could be judged" in diagnosis.verdict
    assert exit_code(diagnosis, Config()) == 4


def test_without_steps_nothing_passes() -> None:
    empty = {name: frame(name, []) for name in ("steps", "graph_breaks", "recompiles")}
    diagnosis = diagnose(Profile(empty, {"steps": 0}), load_rules())
    assert diagnosis.passed == ()
    assert diagnosis.verdict.startswith("Inconclusive")
