from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.diagnosis import Finding, Run
from gpudoctor.engine import run as run_module
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.run import diagnose
from gpudoctor.engine.sandbox import Sandbox
from gpudoctor.errors import RuleError, UsageError
from gpudoctor.profile import Profile, frame

from .rule_text import FRONT, THRESHOLDS, make_rule

SOURCE = "def train():\n    first()\n    slow()  # why\n    slow()\n"


def profile(*rows: dict[str, Any], sources: dict[str, str] | None = None, **facts: Any) -> Profile:
    return Profile({"steps": frame("steps", rows)}, facts=facts, sources=sources or {"train.py": SOURCE})


def select(columns: str, **parts: str | None) -> Rule:
    """A rule that gives one row a step with these columns."""
    return make_rule(thresholds="", sql=f"SELECT {columns} FROM steps ORDER BY step", Message="It is slow.", **parts)


def only(rule: Rule, given: Profile | None = None, **options: Any) -> Finding:
    (finding,) = diagnose(given or profile({"step": 3}, step_ns=1000), [rule], **options).findings
    return finding


def test_a_rule_ends_in_exactly_one_of_the_three_lists() -> None:
    rule = make_rule()
    found = diagnose(profile({"step": 3, "dur_ns": 900}), [rule])
    passed = diagnose(profile({"step": 3, "dur_ns": 9}), [rule])
    missing = diagnose(Profile({}, why_missing={"steps": "no step ended"}), [rule])
    assert [len(found.findings), len(found.passed), len(found.not_measured)] == [1, 0, 0]
    assert [len(passed.findings), len(passed.passed), len(passed.not_measured)] == [0, 1, 0]
    assert [len(missing.findings), len(missing.passed), len(missing.not_measured)] == [0, 0, 1]
    assert missing.not_measured[0].reason == "no step ended"
    assert "gpudoctor check" in missing.not_measured[0].how


def test_a_run_in_which_no_step_was_seen_is_not_measured_rather_than_passed() -> None:
    outcome = diagnose(profile(), [make_rule()])
    assert not outcome.passed
    assert outcome.not_measured[0].reason == "no step was seen"


def test_too_few_steps_in_the_mode_a_rule_needs_are_not_measured() -> None:
    rule = make_rule(front=FRONT + 'observation = "bare"\nmin_steps = 2\n')
    steps = [
        {"step": 1, "observation": "bare", "warmup": True, "dur_ns": 1},
        {"step": 2, "observation": "bare", "warmup": False, "dur_ns": 1},
        {"step": 3, "observation": "light", "warmup": False, "dur_ns": 1},
    ]
    assert "this run has 1" in diagnose(profile(*steps), [rule]).not_measured[0].reason
    assert diagnose(profile(*steps, {"step": 4, "observation": "bare", "dur_ns": 1}), [rule]).passed


def test_steps_of_any_mode_do_where_a_table_was_measured_that_stands_in() -> None:
    front = FRONT + 'observation = "bare"\nmin_steps = 2\noptional = ["gaps"]\ninstead = ["gaps"]\n'
    steps = frame("steps", [{"step": n, "observation": "light", "dur_ns": 1} for n in (1, 2)])
    assert diagnose(Profile({"steps": steps}), [make_rule(front=front)]).not_measured
    assert diagnose(Profile({"steps": steps, "gaps": frame("gaps", [])}), [make_rule(front=front)]).passed
    (missing,) = diagnose(
        Profile({"steps": steps.head(1), "gaps": frame("gaps", [])}), [make_rule(front=front)]
    ).not_measured
    assert missing.reason == "it takes 2 steps watched with the profiler outside warm-up, this run has 1"


def test_a_table_that_stands_in_must_be_one_that_the_rule_reads() -> None:
    with pytest.raises(RuleError, match="`instead` names table 'gaps'; name it in `requires` or `optional`"):
        diagnose(profile({"step": 3}), [make_rule(front=FRONT + 'instead = ["gaps"]\n')])


def test_a_bare_trace_is_priced_in_its_profiled_step_and_a_recording_is_not() -> None:
    rule = select("'train.py' AS file, 3 AS line, 100 AS cost_ns")
    finding = only(rule, profile({"step": 3}, profiled_step_ns=1000, trace={}))
    assert finding.saving is not None
    assert finding.saving.share == 0.1
    assert only(rule, profile({"step": 3}, profiled_step_ns=1000)).saving is None


@pytest.mark.parametrize("horizon", ["epoch", "run"])
def test_silence_before_an_epoch_ended_is_not_measured_but_evidence_counts(horizon: str) -> None:
    rule = make_rule(front=FRONT.replace('"step"\n', f'"{horizon}"\n'))
    quiet, loud = {"step": 3, "dur_ns": 9}, {"step": 3, "dur_ns": 900}
    assert "end of an epoch" in diagnose(profile(quiet, epoch_seen=False), [rule]).not_measured[0].reason
    assert diagnose(profile(quiet, epoch_seen=True), [rule]).passed
    assert diagnose(profile(quiet), [rule]).passed
    assert diagnose(profile(loud, epoch_seen=False), [rule]).findings


def test_preview_rules_run_only_when_asked_but_say_when_they_could_not() -> None:
    rule = make_rule(front=FRONT.replace("stable", "preview"))
    given = profile({"step": 3, "dur_ns": 900})
    off = diagnose(given, [rule])
    assert not (off.findings or off.passed)
    assert [(rule.rule, rule.reason) for rule in off.not_measured] == [("XY001", "preview rules are off")]
    assert diagnose(given, [rule], config=Config(preview=True)).findings
    (both,) = diagnose(Profile({}, why_missing={"steps": "no loop"}), [rule]).not_measured
    assert both.reason == "preview rules are off, and no loop"
    assert both.how.startswith("add `--preview`, and record the run")
    (never,) = diagnose(Profile({}, {}, {}, {"steps": "no loop"}, {"steps": ""}), [rule]).not_measured
    assert (never.reason, never.how) == ("no loop", "")


@pytest.mark.parametrize(
    ("cost", "severity"),
    [(200, "error"), (199, "warning"), (30, "warning"), (29, "info"), (0, "info"), (9999, "error")],
)
def test_severity_follows_the_share_of_the_step(cost: int, severity: str) -> None:
    finding = only(select(f"'train.py' AS file, 3 AS line, {cost} AS cost_ns"))
    assert finding.severity == severity
    assert finding.saving is not None
    assert (finding.saving.ns_per_step, finding.saving.share) == (min(cost, 1000), min(1.0, cost / 1000))
    assert finding.saving.grade == "estimated"


def test_without_a_step_time_or_a_cost_there_is_no_saving_and_the_default_severity() -> None:
    front = FRONT + 'severity = "info"\n'
    no_step = only(select("900 AS cost_ns", front=front), profile({"step": 3}, step_ns=None))
    no_cost = only(select("NULL AS cost_ns", front=front))
    assert [(f.saving, f.severity) for f in (no_step, no_cost)] == [(None, "info")] * 2


def test_the_run_gives_the_step_time_when_there_is_one() -> None:
    finding = only(select("500 AS cost_ns"), run=Run("train.py", step_ns=5000))
    assert finding.saving is not None
    assert finding.saving.share == 0.1


def test_costs_outside_the_steady_step_are_a_share_of_the_mean_step() -> None:
    finding = only(select("1000 AS cost_ns", front=FRONT.replace('"step"\n', '"run"\n')))
    assert finding.saving is not None
    assert finding.saving.share == 0.5


def test_a_row_overrides_the_severity_and_the_rule_caps_it() -> None:
    assert only(select("900 AS cost_ns, 'info' AS severity")).severity == "info"
    capped = select("900 AS cost_ns", front=FRONT + 'max_severity = "warning"\n')
    assert only(capped).severity == "warning"


def test_the_place_has_its_function_excerpt_and_other_places() -> None:
    finding = only(
        select(
            "'train.py' AS file, 3 AS line, 'model' AS module, 'loop' AS role, "
            "[{'file': 'train.py', 'line': 2, 'role': 'a'}, "
            "{'file': 'train.py', 'line': 3, 'role': 'itself'}, {'file': NULL, 'line': 1, 'role': 'unknown'}, "
            "{'file': 'train.py', 'line': 2, 'role': 'again'}] AS locations"
        )
    )
    where = finding.where
    assert where is not None
    assert (where.file, where.line, where.function, where.module, where.role) == (
        "train.py",
        3,
        "train",
        "model",
        "loop",
    )
    assert [(place.line, place.role) for place in finding.locations] == [(2, "a")]
    assert [(line.number, line.culprit) for line in finding.excerpt] == [(1, False), (2, False), (3, True), (4, False)]
    assert only(select("NULL AS file, 3 AS line")).where is None


def test_evidence_columns_are_shown_in_the_unit_of_their_suffix() -> None:
    finding = only(
        select(
            "1500 AS wait_ns_per_step, 0.5 AS used_ratio, 2048 AS copied_bytes, 3 AS copies_per_step, true AS pinned, "
            "NULL AS hint, ['a', 'b'] AS names, 7 AS _hidden, "
            "[{'line': 'x', 'time_us': 3}, {'line': 'y', 'time_us': NULL}] AS evidence"
        )
    )
    columns, rows = finding.evidence
    assert columns.columns == ("wait per step", "used", "copied", "copies per step", "pinned", "names")
    assert columns.rows == (("1.50 µs", "50 %", "2.00 KiB", "3", "yes", "a, b"),)
    assert (rows.columns, rows.rows) == (("line", "time"), (("x", "3.00 µs"), ("y", "–")))
    assert (columns.title, rows.title) == ("Measured", "Measured")


def test_columns_of_one_title_say_what_they_measure_and_a_table_of_nulls_is_none() -> None:
    (table,) = only(select("15 AS copies_ns_per_step, 3 AS copies_per_step, [{'line': NULL}] AS evidence")).evidence
    assert table.columns == ("copies per step (time)", "copies per step (number)")


def test_the_list_of_evidence_comes_after_the_row_under_the_rules_title() -> None:
    front = FRONT + 'evidence_title = "Hottest lines"\n'
    found = only(select("7 AS n, [{'line': 'a.py:3'}] AS evidence", front=front)).evidence
    assert [(table.title, table.rows) for table in found] == [
        ("Measured", (("7",),)),
        ("Hottest lines", (("a.py:3",),)),
    ]


def test_a_suppressed_finding_is_kept_and_accepted() -> None:
    text = SOURCE.replace("# why", "# gpudoctor: ignore[XY001] measured, harmless")
    columns = "'train.py' AS file, 3 AS line"
    given = profile({"step": 3}, sources={"train.py": text})
    assert only(select(columns), given).accepted == "measured, harmless"
    assert only(select(columns + ", 'on purpose' AS accepted"), given).accepted == "on purpose"
    assert only(select(columns)).accepted is None


REMEDIES = """\
[remedies.first]
text = "do {{ _x }}"
risk = "none"
edit = { call = "slow", set = { fast = "{{ _x }}" }, at = "call" }
[remedies.second]
text = "or that"
"""


def remedied(columns: str) -> Rule:
    return replace(make_rule(thresholds=THRESHOLDS + REMEDIES), sql=f"SELECT 1 AS cost_ns, {columns} FROM steps")


def test_the_first_remedy_is_the_default_and_a_row_picks_another() -> None:
    first = only(remedied("'train.py' AS file, 4 AS line, 'call' AS role, 7 AS _x")).remedy
    assert first is not None
    assert (first.name, first.text, first.risk) == ("first", "do 7", "none")
    assert first.diff is not None
    assert "+    slow(fast=7)" in first.diff
    second = only(remedied("'second' AS remedy, 7 AS _x")).remedy
    assert second is not None
    assert (second.name, second.diff) == ("second", None)


def test_there_is_no_diff_where_only_the_function_is_known() -> None:
    remedy = only(remedied("'train.py' AS file, 4 AS line, 'call' AS role, 'def' AS precision, 7 AS _x")).remedy
    assert remedy is not None
    assert remedy.diff is None


@pytest.mark.parametrize(
    "columns",
    [
        "'bad' AS severity",
        "'x' AS line",
        "true AS line",
        "1.5 AS count",
        "'x' AS cost_ns",
        "3 AS file",
        "'nope' AS remedy, 1 AS _x",
        "[1] AS locations",
        "1 AS accepted",
    ],
)
def test_a_contract_column_of_the_wrong_kind_is_a_rule_error(columns: str) -> None:
    rule = replace(remedied("1 AS _x"), sql=f"SELECT {columns} FROM steps", sections=select("1 AS x").sections)
    with pytest.raises(RuleError, match="XY001"):
        diagnose(profile({"step": 3}, step_ns=10), [rule])


def test_findings_are_ranked_by_saving_then_severity_then_place() -> None:
    rule = make_rule(
        thresholds="",
        sql="SELECT 'train.py' AS file, step AS line, dur_ns AS cost_ns, CASE step WHEN 1 THEN 'error' END AS severity "
        "FROM steps",
        Message="It is slow.",
    )
    given = profile({"step": 4}, {"step": 2}, {"step": 3, "dur_ns": 900}, {"step": 1}, step_ns=1000)
    found = diagnose(given, [rule]).findings
    assert [finding.where.line for finding in found if finding.where] == [3, 1, 2, 4]


def fingerprints(source: str, *lines: int) -> list[str]:
    rows = [{"step": line} for line in lines]
    rule = select("'train.py' AS file, step AS line, dur_ns AS cost_ns")
    found = diagnose(profile(*rows, sources={"train.py": source}), [rule]).findings
    return [finding.fingerprint for finding in found]


def test_a_fingerprint_survives_moves_comments_and_blanks() -> None:
    (before,) = fingerprints(SOURCE, 3)
    moved = "import x\n\n" + SOURCE.replace("    slow()  # why", "    slow( )".replace("( )", "()") + "   # other")
    assert fingerprints(moved, 5) == [before]
    assert len(before) == 16


def test_a_fingerprint_changes_with_the_code_the_function_and_the_rule() -> None:
    (before,) = fingerprints(SOURCE, 3)
    assert fingerprints(SOURCE.replace("slow()  # why", "fast()"), 3) != [before]
    assert fingerprints(SOURCE.replace("train", "other"), 3) != [before]
    other = replace(select("'train.py' AS file, 3 AS line"), id="XY002")
    assert only(other).fingerprint != before


def test_twin_lines_are_told_apart_by_their_order() -> None:
    first, second = fingerprints(SOURCE, 3, 4)
    assert first != second
    assert fingerprints("\n" + SOURCE, 5, 4) == [first, second]
    assert fingerprints(SOURCE, 3) == [first]


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        (Config(), ["XY001", "XY002", "ZZ001"]),
        (Config(select=("XY",)), ["XY001", "XY002"]),
        (Config(select=("xy001", "zz")), ["XY001", "ZZ001"]),
        (Config(select=("XY",), ignore=("slow-step",)), ["XY002"]),
    ],
)
def test_select_and_ignore_take_ids_names_and_beginnings(config: Config, rules: list[str]) -> None:
    rule = make_rule()
    known = [rule, replace(rule, id="XY002", name="two"), replace(rule, id="ZZ001", name="three")]
    assert [item.id for item in run_module.select_rules(known, config)] == rules


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(select=("XY009",)), "did you mean 'XY001'"),
        (Config(ignore=("",)), "no rule"),
        (Config(path=Path("pyproject.toml"), thresholds={"XY002": {}}), "XY001"),
        (Config(path=Path("pyproject.toml"), thresholds={"XY001": {"slow_n": 3}}), "did you mean 'slow_ns'"),
        (Config(path=Path("pyproject.toml"), thresholds={"XY001": {"slow_ns": "x"}}), "must be a number"),
    ],
)
def test_a_configuration_that_fits_no_rule_is_a_usage_error(config: Config, said: str) -> None:
    with pytest.raises(UsageError) as error:
        diagnose(profile({"step": 1}), [make_rule()], config=config)
    assert said in str(error.value)


def test_a_configured_threshold_replaces_the_rules_own() -> None:
    given = profile({"step": 3, "dur_ns": 900})
    assert diagnose(given, [make_rule()], config=Config(thresholds={"XY001": {"slow_ns": 1000}})).passed


def test_a_rule_that_runs_out_of_its_limits_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "Sandbox", lambda given: Sandbox(given, max_rows=1))
    outcome = diagnose(profile({"step": 1}, {"step": 2}), [select("step AS line")])
    assert "more than 1 rows" in outcome.not_measured[0].reason


def test_a_text_with_a_loop_is_a_rule_error_before_anything_is_found() -> None:
    with pytest.raises(RuleError, match=r"\{% for %\}"):
        diagnose(profile({"step": 1, "dur_ns": 1}), [make_rule(Message="{% for x in file %}{% endfor %}")])


def test_an_unknown_table_is_a_rule_error_with_the_closest_one() -> None:
    with pytest.raises(RuleError, match="did you mean 'steps'"):
        diagnose(profile({"step": 1}), [replace(make_rule(), requires=("step",))])
    with pytest.raises(RuleError, match="both"):
        diagnose(profile({"step": 1}), [replace(make_rule(), optional=("steps",))])
