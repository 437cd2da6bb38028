from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoctor.engine.selftest import check_rule

from .rule_text import SECTIONS, make_rule


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
