from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from gpudoctor.diagnosis import Finding
from gpudoctor.engine.docs import rules_page
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.engine.run import diagnose
from gpudoctor.engine.selftest import check_rule
from gpudoctor.profile import TABLES, Profile, empty, frame
from gpudoctor.resources import rules_dir

RULES = load_rules()
MAX_SQL_LINES = 20
PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


@pytest.fixture(params=RULES, ids=[rule.id for rule in RULES])
def rule(request: pytest.FixtureRequest) -> Rule:
    found: Rule = request.param
    return found


def test_its_examples_hold(rule: Rule) -> None:
    assert check_rule(rule) == ()


def test_it_shows_when_it_fires_and_when_it_stays_silent(rule: Rule) -> None:
    assert sum(example.expect > 0 for example in rule.examples) >= 2
    assert sum(example.expect == 0 for example in rule.examples) >= 3
    assert all(example.title for example in rule.examples)


def test_its_query_is_short(rule: Rule) -> None:
    assert len(rule.sql.splitlines()) <= MAX_SQL_LINES


def test_its_file_is_named_after_it_and_its_id_is_ours(rule: Rule) -> None:
    assert rule.path == rules_dir() / f"{rule.id}-{rule.name}.md"
    assert re.fullmatch(r"GD\d{3}", rule.id)


def test_it_refers_to_documentation(rule: Rule) -> None:
    assert "](https://" in rule.sections["References"]


def test_every_remedy_is_reachable(rule: Rule) -> None:
    if len(rule.remedies) > 1:
        assert all(f"'{name}'" in rule.sql for name in rule.remedies)


def test_nothing_is_found_in_a_profile_of_empty_tables(rule: Rule) -> None:
    assert diagnose(Profile({name: empty(name) for name in TABLES}), [rule]).findings == ()


def test_one_row_of_nulls_in_every_table_does_no_harm(rule: Rule) -> None:
    diagnose(Profile({name: frame(name, [{}]) for name in TABLES}, facts={"step_ns": 1}), [rule])


def test_the_documentation_matches_the_rule_files() -> None:
    assert PAGE.read_text(encoding="utf-8") == rules_page(RULES), "run `gpudoctor rules docs`"


def diagnosed(rule_id: str, profile: Profile) -> tuple[Finding, ...]:
    return diagnose(profile, [rule for rule in RULES if rule.id == rule_id]).findings


def recompiles(values: list[int], **row: object) -> Profile:
    rows = [
        {"compile_id": f"0/{i}", "frame": 0, "cause": "shape", "expected": str(a), "actual": str(b), "dur_ns": 1} | row
        for i, (a, b) in enumerate(pairwise(values), 1)
    ]
    return Profile({"recompiles": frame("recompiles", rows), "steps": frame("steps", [{"step": 0}])})


def test_recompiles_are_shown_in_the_order_they_came_beyond_ten() -> None:
    (finding,) = diagnosed("GD102", recompiles(list(range(12, 0, -1)), caller_file="t.py", caller_line=3))
    assert ", ".join(map(str, range(12, 0, -1))) in finding.message
    assert finding.remedy is not None
    assert finding.remedy.name == "mark_dynamic"


def test_recompiles_of_a_function_and_its_continuations_are_one_finding() -> None:
    rows = [
        {"compile_id": f"{frame_id}/1", "frame": frame_id, "function": "forward", "cause": "shape", "dur_ns": 5}
        | {"caller_file": "t.py", "caller_line": 3, "expected": "8", "actual": "4", "dynamic_dims": 0}
        for frame_id in (0, 1)
    ]
    profile = Profile({"recompiles": frame("recompiles", rows), "steps": frame("steps", [{"step": 0}])})
    (finding,) = diagnosed("GD102", profile)
    assert finding.count == 2


def test_a_read_that_happens_one_and_a_half_times_a_step_is_counted_whole() -> None:
    ops = [
        {"op": i, "name": "aten::item", "step": step, "observation": "detail", "phase": "other", "file": "t.py"}
        | {"line": 1, "owner": "user", "host_read": True}
        for i, step in enumerate((1, 1, 2))
    ]
    (finding,) = diagnosed("GD301", Profile({"ops": frame("ops", ops)}))
    assert (finding.count, finding.severity) == (1, "info")
