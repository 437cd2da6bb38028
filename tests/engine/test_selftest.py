from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.engine import run as run_module
from gpudoctor.engine.sandbox import Sandbox
from gpudoctor.engine.selftest import check_rule

from .rule_text import FRONT, SECTIONS, THRESHOLDS, make_rule


def test_a_rule_that_does_what_it_says_has_no_failures() -> None:
    assert check_rule(make_rule()) == ()


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        (SECTIONS["Examples"].replace("expect=1", "expect=2"), "gives 1 findings, expected 2"),
        (SECTIONS["Examples"].replace("dur_ns = 9 ", "dur_ns = 999 "), "gives 1 findings, expected 0"),
        (SECTIONS["Examples"].split("None.")[0], "no good example"),
        ("None." + SECTIONS["Examples"].split("None.")[1], "no bad example"),
        (SECTIONS["Examples"].replace("steps", "step"), "does not read; did you mean 'steps'"),
        (SECTIONS["Examples"].replace("dur_ns", "dur_us"), "no column 'dur_us'; did you mean 'dur_ns'"),
        (SECTIONS["Examples"].replace("dur_ns = 9 ", 'dur_ns = "x" '), "tables cannot be built"),
        (SECTIONS["Examples"].replace("= 900 ", f"= {2**63} "), "outside the 64 bits"),
        (SECTIONS["Examples"].replace("900 }]", "900 }]\n[[finding]]\nline = 4"), "line is 3, expected 4"),
        (SECTIONS["Examples"].replace("900 }]", "900 }]\n[[finding]]\nlines = 4"), "no key 'lines'"),
        (SECTIONS["Examples"].replace("900 }]", '900 }]\n[[finding]]\nmessage = "fast"'), "does not contain 'fast'"),
    ],
)
def test_an_example_that_does_not_hold_is_named_with_what_happened(examples: str, said: str) -> None:
    failures = check_rule(make_rule(Examples=examples))
    assert any(said in failure.reason for failure in failures), failures


def test_a_message_that_uses_a_column_the_query_does_not_give_fails() -> None:
    failures = check_rule(make_rule(Message="{{ nothing }}"))
    assert ["'nothing' is undefined" in failure.reason for failure in failures] == [True]
    assert failures[0].line > 0


def test_a_query_that_finds_something_in_empty_tables_fails() -> None:
    rule = replace(make_rule(), requires=("batches",), examples=(), sql="SELECT 1 AS cost_ns WHERE $slow_ns > 0")
    assert any("on empty tables" in failure.reason for failure in check_rule(rule))


def test_a_text_with_a_loop_fails_even_where_nothing_is_found() -> None:
    rule = make_rule(Message="{% for a in file %}x{% endfor %}", Examples="None.\n```toml good\nsteps = []\n```")
    (failure,) = check_rule(rule)
    assert "## Message: a text uses {% for %}" in failure.reason
    remedies = '[remedies.a]\ntext = "{% include 1 %}"\n'
    (failure,) = check_rule(make_rule(thresholds=THRESHOLDS + remedies))
    assert "remedies.a.text: a text uses {% include %}" in failure.reason
    remedies = '[remedies.a]\ntext = "x"\nedit = { call = "f", set = { k = "{{ f() }}" } }\n'
    (failure,) = check_rule(make_rule(thresholds=THRESHOLDS + remedies))
    assert "remedies.a.edit.set.k: a text uses a call" in failure.reason


@pytest.mark.parametrize(
    ("limits", "sql", "said"),
    [
        ({"max_rows": 1}, "SELECT 1 AS line FROM steps, range(9) WHERE $slow_ns > 0", "more than 1 rows"),
        (
            {"timeout_s": 0.2},
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT max(n) AS n FROM x, steps "
            "WHERE $slow_ns > 0",
            "stopped after 0.2 s",
        ),
    ],
)
def test_an_example_that_hits_a_limit_says_so_be_it_good_or_bad(
    limits: dict[str, Any], sql: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "Sandbox", lambda given: Sandbox(given, **limits))
    reasons = {failure.line: failure.reason for failure in check_rule(make_rule(sql=sql)) if failure.line}
    assert len(reasons) == 2
    assert all(said in reason and "expected" not in reason for reason in reasons.values())


def test_an_example_that_was_not_measured_says_why() -> None:
    (failure,) = check_rule(make_rule(front=FRONT + 'observation = "bare"\n'))
    assert "gives 0 findings, expected 1; not measured: it takes 1 step watched in bare mode" in failure.reason
