"""GD405 on runs of hundreds of steps, which are too long for an example."""

from __future__ import annotations

import pytest

from gpudoctor.diagnosis import Finding
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.engine.run import diagnose
from gpudoctor.profile import Profile, frame

RULES = [rule for rule in load_rules() if rule.id == "GD405"]


def diagnosed(
    skipped: list[int], steps: int = 600, grew: int | None = None, scale: float = 512.0
) -> tuple[Finding, ...]:
    rows = [
        {"scaler": 0, "number": n, "skipped": n in skipped, "grew": n == grew, "scale": scale} for n in range(steps)
    ]
    given = {
        "ops": [
            {"op": 0, "name": "aten::mm", "op_class": "gemm", "dtypes": "c10::Half", "step": 3, "observation": "detail"}
        ],
        "steps": [{"step": 3, "observation": "detail", "dur_ns": 1, "warmup": False}],
        "scalers": [{"scaler": 0, "file": "t.py", "line": 4, "enabled": True, "growth_interval": 2000}],
        "scaler_steps": rows,
    }
    return diagnose(Profile({name: frame(name, made) for name, made in given.items()}), RULES).findings


def test_one_skip_in_ten_after_the_search_is_too_many() -> None:
    (finding,) = diagnosed(list(range(0, 600, 10)))
    assert (finding.where.line if finding.where else None, finding.severity) == (4, "warning")
    assert "skips 9.8 % of the steps (39 of 399" in finding.message
    assert finding.message.endswith("its scale is 512.")


def test_a_scale_that_fell_below_one_is_said_so() -> None:
    (finding,) = diagnosed(list(range(0, 600, 10)), scale=1e-9)
    assert finding.message.endswith("its scale is below 1.")


@pytest.mark.parametrize(
    ("skipped", "steps", "grew"),
    [
        (list(range(30)), 600, None),  # the search alone
        (list(range(0, 600, 40)), 600, None),  # one in 40
        (list(range(0, 300, 10)), 300, None),  # too few steps seen behind the search
        (list(range(0, 120, 2)), 600, 150),  # until the scale first grew
    ],
)
def test_the_search_rare_skips_and_short_looks_are_silent(skipped: list[int], steps: int, grew: int | None) -> None:
    assert diagnosed(skipped, steps, grew) == ()


def test_skips_count_from_the_first_growth_on() -> None:
    assert len(diagnosed(list(range(60, 320, 10)), 330, 50)) == 1
