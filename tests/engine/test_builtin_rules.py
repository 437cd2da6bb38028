from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from gpudoctor.config import Config
from gpudoctor.diagnosis import Finding
from gpudoctor.engine.docs import rules_page, with_families
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


def test_the_readme_has_every_rule() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert readme == with_families(readme, RULES), "run `gpudoctor rules docs`"
    assert [rule.id for rule in RULES if f"[{rule.name}](docs/rules.md#{rule.id.lower()}" not in readme] == []


def diagnosed(rule_id: str, profile: Profile) -> tuple[Finding, ...]:
    return diagnose(profile, [rule for rule in RULES if rule.id == rule_id]).findings


@pytest.mark.parametrize(
    ("reason", "explanation", "shown"),
    [
        ("call to print", "Dynamo does not trace a Call to `print`.", False),
        ("Dynamo does not know how to trace logging.debug", "Dynamo does not know how to help here", False),
        ("Unsupported: Backend reset. Stop", "backend reset", False),
        ("call to print", "Dynamo does not trace printing", True),
        (None, "Dynamo does not trace printing", True),
        ("call to print", None, False),
    ],
)
def test_dynamos_explanation_is_left_out_where_the_reason_says_it(
    reason: str | None, explanation: str | None, shown: bool
) -> None:
    row = {"file": "t.py", "line": 3, "reason": reason, "explanation": explanation, "skipped": False}
    (finding,) = diagnosed("GD101", Profile({"graph_breaks": frame("graph_breaks", [row])}))
    assert finding.message.endswith(f" {explanation}" if shown else ").")


def test_the_explanation_is_compared_with_each_of_several_reasons() -> None:
    rows = [{"file": "t.py", "line": 3, "reason": reason} for reason in ("A first reason", "Call to print")]
    rows.append({"file": "t.py", "line": 3, "explanation": "call to print here"})
    (finding,) = diagnosed("GD101", Profile({"graph_breaks": frame("graph_breaks", rows)}))
    assert "here" in finding.message  # Dynamo breaks the graph here
    assert "call to print here" not in finding.message


@pytest.mark.parametrize(
    ("fills", "caller", "said"),
    [
        (1, "zero_grad", "`zero_grad` writes zeros over the gradients in every step: 1 fill, 50.0 µs a step"),
        (1, "train", "This line writes zeros over the gradients in every step: 1 fill, 50.0 µs a step"),
        (2, "train", "This loop writes zeros over the gradients in every step: 2 fills, 100 µs a step"),
    ],
)
def test_fills_are_counted_in_words(fills: int, caller: str, said: str) -> None:
    row = {"name": "aten::zero_", "step": 3, "observation": "detail", "dur_ns": 50_000, "file": "t.py", "line": 9}
    ops = [{"op": i, **row, "owner": "user", "caller_function": caller} for i in range(fills)]
    config = Config(thresholds={"GD505": {"min_fills": 1}})
    rules = [rule for rule in RULES if rule.id == "GD505"]
    (finding,) = diagnose(Profile({"ops": frame("ops", ops)}), rules, config=config).findings
    assert finding.message.startswith(said)


def stalled(workers: int, **tables: list[dict[str, object]]) -> Profile:
    steps = [{"step": i, "dur_ns": 60_000_000, "observation": "bare", "warmup": False} for i in (1, 2, 3)]
    batches = [{"loader": 0, "step": i, "position": i, "wait_ns": 40_000_000, "size": 8} for i in (1, 2, 3)]
    loaders = [{"loader": 0, "file": "train.py", "line": 2, "num_workers": workers, "cores": 8}]
    given = {"steps": steps, "batches": batches, "loaders": loaders, **tables}
    return Profile({name: frame(name, rows) for name, rows in given.items()}, facts={"step_ns": 60_000_000})


def test_a_stall_lists_the_five_hottest_lines_of_the_dataset_after_what_was_measured() -> None:
    shares = (0.03, 0.4, 0.25, 0.05, 0.2, 0.07)
    lines: list[dict[str, object]] = [
        {"file": "data.py", "line": i, "samples": round(100 * share), "share": share} for i, share in enumerate(shares)
    ]
    (finding,) = diagnosed("GD601", stalled(0, input_lines=lines))
    assert [table.title for table in finding.evidence] == ["Measured", "Hottest lines of the dataset"]
    assert finding.evidence[1].columns == ("line", "share")
    assert finding.evidence[0].columns[0] == "wait per step"
    assert finding.evidence[1].rows == (
        ("data.py:1", "40 %"),
        ("data.py:2", "25 %"),
        ("data.py:4", "20 %"),
        ("data.py:5", "7.0 %"),
        ("data.py:3", "5.0 %"),
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stall_lists_no_lines_that_were_not_sampled(workers: int) -> None:
    lines: list[dict[str, object]] = [{"file": "data.py", "line": 1, "samples": 1, "share": 1.0}]
    given = stalled(workers, input_lines=lines) if workers else stalled(workers)
    (finding,) = diagnosed("GD601", given)
    assert [table.title for table in finding.evidence] == ["Measured"]


def test_recompiles_are_never_an_error_however_short_the_look() -> None:
    given = recompiles([96, 50, 65], dur_ns=10**12, caller_file="t.py", caller_line=3, dynamic_dims=0)
    rules = [rule for rule in RULES if rule.id == "GD102"]
    (finding,) = diagnose(Profile(given.tables, facts={"step_ns": 10**6}), rules).findings
    assert finding.severity == "warning"


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
