"""Rules that need a GPU, on recordings of the synthetic machine: found in the problem, and the twin has no warning."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.ingest import open_path
from tests.synthetic import recording, trace
from tests.synthetic.programs import pairs


@cache
def diagnosed(program: Any, watched: bool) -> Diagnosis:
    place = Path(mkdtemp()) / "run"
    if watched:
        recording(program, place)
    else:
        trace(program, place)
    return diagnose(open_path(place), load_rules(), Config(preview=True))


@pytest.mark.parametrize("watched", [True, False], ids=["recording", "trace"])
@pytest.mark.parametrize("rule", pairs.PAIRS)
def test_the_problem_is_found(rule: str, watched: bool) -> None:
    assert rule in {finding.rule for finding in diagnosed(pairs.PAIRS[rule][0], watched).findings}


@pytest.mark.parametrize("watched", [True, False], ids=["recording", "trace"])
@pytest.mark.parametrize("rule", pairs.PAIRS)
def test_the_twin_has_no_warning(rule: str, watched: bool) -> None:
    found = diagnosed(pairs.PAIRS[rule][1], watched).findings
    assert not [f.rule for f in found if f.rule == rule or f.severity != "info"]
