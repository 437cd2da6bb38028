from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.engine.rulefile import find_rule, load_rule, load_rules, parse_rule
from gpudoctor.errors import RuleError, UsageError

from .rule_text import FRONT, SQL, THRESHOLDS, make_rule, rule_text

PATH = Path("rules/XY001-slow-step.md")


def test_a_valid_file_gives_every_part() -> None:
    rule = make_rule()
    assert (rule.id, rule.name, rule.status, rule.horizon, rule.requires) == (
        "XY001",
        "slow-step",
        "stable",
        "step",
        ("steps",),
    )
    assert (rule.severity, rule.max_severity, rule.min_steps) == ("warning", None, 1)
    assert rule.thresholds["slow_ns"].doc == "a reason"
    assert rule.sql == SQL
    assert [(example.title, example.expect) for example in rule.examples] == [("One.", 1), ("None.", 0)]


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "XY001.md"
    path.write_bytes(b"\xef\xbb\xbf" + rule_text().replace("\n", "\r\n").encode())
    assert load_rule(path).sql == SQL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (rule_text()[3:], "must begin with"),
        ("+++\nid = 'XY001'\n", "closing"),
        (rule_text(front="id = "), "not TOML"),
        (rule_text(front=FRONT + "colour = 1\n"), "'colour'"),
        (rule_text(front=FRONT + "statos = 1\n"), "did you mean 'status'"),
        (rule_text(front=FRONT.replace("since", "sinse")), "since"),
        (rule_text(front=FRONT.replace('title = "A step is slow"', 'title = ""')), "title"),
        (rule_text(front=FRONT.replace("XY001", "x1")), "GD101"),
        (rule_text(front=FRONT.replace("slow-step", "Slow Step")), "kebab"),
        (rule_text(front=FRONT.replace("stable", "beta")), "stable, preview"),
        (rule_text(front=FRONT.replace('"step"\n', '"week"\n')), "step, epoch, run"),
        (rule_text(front=FRONT.replace('["steps"]', '"steps"')), "`requires`"),
        (rule_text(front=FRONT.replace('["steps"]', "[]")), "`requires`"),
        (rule_text(front=FRONT + "severity = 'bad'\n"), "error, warning, info"),
        (rule_text(front=FRONT + "min_steps = 'x'\n"), "min_steps"),
        (rule_text(front=FRONT + "what_if = {}\n"), "edit"),
        (rule_text(front=FRONT + "what_if = { edit = 'paint' }\n"), "drop"),
        (
            rule_text(front=FRONT + "what_if = { edit = 'drop', remedies = { keep = 'scale' } }\n"),
            "add [remedies.keep]",
        ),
        (rule_text(thresholds='[thresholds]\nslow_ns = { value = 1, doc = "x" }\n'), "unit"),
        (rule_text(thresholds='[thresholds]\nslow_ns = { value = nan, unit = "x", doc = "x" }\n'), "finite"),
        (rule_text(front=FRONT + "evidence_title = 3\n"), "evidence_title"),
        (rule_text(front=FRONT + "x = 1" + "0" * 5000 + "\n"), "not TOML"),
        (rule_text(thresholds='[thresholds]\nslow_ns = { value = 1, unit = "ns" }\n'), "doc"),
        (rule_text(thresholds='[thresholds]\nslow_ns = { value = [], unit = "ns", doc = "x" }\n'), "value"),
        (rule_text(thresholds="[thresholds]\nslow_ns = 3\n"), "table"),
        (rule_text(thresholds=""), "$slow_ns"),
        (rule_text(sql="SELECT 1 AS line -- $slow_ns"), "'slow_ns' is not used"),
        (rule_text(sql="SELECT '$slow_ns' AS line"), "'slow_ns' is not used"),
        (rule_text(more="```sql\nSELECT 1\n```\n"), "2 blocks"),
        (rule_text().replace("```sql", "```text"), "0 blocks"),
        (rule_text(How_to_fix=None), "## How to fix"),
        (rule_text(How_to_fix=" "), "## How to fix"),
        (rule_text(How_too_fix="x"), "did you mean 'How to fix'"),
        (rule_text(more="## Message\nx\n"), "twice"),
        (rule_text(Examples="```toml bad\n```"), "expect=N"),
        (rule_text(Examples="```toml bad expect=0\n```"), "expect=N"),
        (rule_text(Examples="```toml good\nsteps = 1\n```"), "[[steps]]"),
        (rule_text(Examples="```toml good\n[[finding]]\nline = 1\n```"), "expects 0"),
        (rule_text(Examples="```toml good\nx =\n```"), "not TOML"),
        (rule_text(Examples="```toml good\n"), "not closed"),
        (rule_text(thresholds=THRESHOLDS + "[remedies.a]\nrisk = 'x'\n"), "remedies.a.text"),
        (rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nrisc = 'x'\n"), "did you mean 'risk'"),
        (rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nedit = { call = 'f' }\n"), "changes nothing"),
        (rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nedit = { drop = ['f'] }\n"), "lacks `call`"),
        (rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nedit = { kind = 'methd' }\n"), "'method'"),
        (rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nedit = { kind = 'wrap' }\n"), "the kinds are"),
        (
            rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext='x'\nedit = { kind = 'sdpa', every = true }\n"),
            "goes with `at`",
        ),
        (
            rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext='x'\nedit = { kind = 'method', attribute = 'f' }\n"),
            "lacks `to`: its new name",
        ),
        (
            rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nedit = { kind = 'delete', call = 'f' }\n"),
            "did you mean 'calls'",
        ),
        (
            rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext='x'\nedit = { kind = 'delete', calls = ['f()'] }\n"),
            "dotted names",
        ),
        (
            rule_text(
                thresholds=THRESHOLDS
                + "[remedies.a]\ntext = 'x'\nedit = { kind = 'insert', statement = 'f()', place = 'x' }\n"
            ),
            "before, after, imports",
        ),
        (
            rule_text(thresholds=THRESHOLDS + "[remedies.a]\ntext = 'x'\nedit = { call = 'f', set = { a = 1 } }\n"),
            "quotes",
        ),
    ],
)
def test_a_mistake_is_an_error_that_names_the_file_and_the_fault(text: str, said: str) -> None:
    with pytest.raises(RuleError) as error:
        parse_rule(text, PATH)
    assert str(error.value).startswith(f"{PATH}: ")
    assert said in str(error.value)


@given(st.text())
def test_any_text_gives_a_rule_error_at_worst(text: str) -> None:
    with pytest.raises(RuleError):
        parse_rule(text, PATH)


@given(st.data())
def test_a_file_with_lines_missing_gives_a_rule_or_a_rule_error(data: st.DataObject) -> None:
    lines = rule_text().split("\n")
    gone = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=3))
    text = "\n".join(line for i, line in enumerate(lines) if i not in gone)
    try:
        assert parse_rule(text, PATH).id == "XY001"
    except RuleError as error:
        assert str(PATH) in str(error)


def test_an_unreadable_file_is_a_rule_error(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\xfe")
    with pytest.raises(RuleError, match="UTF-8"):
        load_rule(tmp_path / "a.md")


def test_further_folders_add_rules_and_clashes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "XY001.md").write_text(rule_text(), encoding="utf-8")
    (tmp_path / "README.md").write_text("not a rule", encoding="utf-8")
    assert "XY001" in [rule.id for rule in load_rules([tmp_path])]
    (tmp_path / "XY002.md").write_text(rule_text(front=FRONT.replace("slow-step", "other")), encoding="utf-8")
    with pytest.raises(RuleError, match="XY001 is taken"):
        load_rules([tmp_path])
    with pytest.raises(RuleError, match="rule-dirs"):
        load_rules([tmp_path / "nowhere"])


def test_a_rule_is_found_by_id_and_name_in_any_case() -> None:
    rule = make_rule()
    assert find_rule([rule], "xy001") is rule
    assert find_rule([rule], "Slow-Step") is rule
    with pytest.raises(UsageError, match="did you mean 'slow-step'"):
        find_rule([rule], "slow-stop")


def test_loading_rules_imports_neither_pandas_nor_duckdb_nor_torch() -> None:
    code = (
        "import sys; from gpudoctor.engine.rulefile import load_rules; assert load_rules();"
        "heavy = {'pandas', 'duckdb', 'torch', 'pyarrow', 'libcst', 'jinja2'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
