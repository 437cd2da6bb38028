"""Each memory rule finds its problem, and is silent about the healthy twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.diagnose import diagnose
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.ingest import open_path
from tests.memory.pairs import PAIRS


@pytest.mark.parametrize("rule", PAIRS)
def test_the_problem_is_found_and_the_twin_is_silent(rule: str, tmp_path: Path) -> None:
    problem, twin = PAIRS[rule]
    found = diagnose(open_path(problem(tmp_path / "problem.pickle")), load_rules(())).findings
    assert rule in {finding.rule for finding in found}
    assert diagnose(open_path(twin(tmp_path / "twin.pickle")), load_rules(())).findings == ()
