from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.diagnosis import Diagnosis, Finding, Location, Run, Saving
from gpudoctor.engine.causes import check_causes, nested
from gpudoctor.engine.rule import Cause, Rule
from gpudoctor.engine.rulefile import load_rules, parse_rule
from gpudoctor.errors import RuleError

from .rule_text import FRONT, make_rule, rule_text

BASE = make_rule()


def rule(name: str, *causes: Cause) -> Rule:
    return replace(BASE, id=name, explained_by=causes)


def finding(name: str, line: int, ns: int | None = None, *more: int, function: str | None = None) -> Finding:
    return Finding(
        rule=name,
        name="n",
        title="t",
        severity="warning",
        message="m",
        where=Location("train.py", line, function=function),
        locations=tuple(Location("train.py", other) for other in more),
        saving=None if ns is None else Saving(ns, 0.1),
        fingerprint=f"{name}:{line}",
    )


def causes(findings: list[Finding], *rules: Rule) -> dict[str, str | None]:
    made = nested(findings, {rule.id: rule for rule in rules})
    return {finding.fingerprint: finding.explained_by for finding in made}


LIMIT = rule("XY104", Cause("XY103", "place", "each value costs a compilation"))
VALUE = rule("XY103")


def test_a_finding_is_explained_by_one_that_shares_a_line_with_it() -> None:
    found = [finding("XY103", 10, 5, 44), finding("XY104", 12, None, 44), finding("XY104", 80)]
    assert causes(found, LIMIT, VALUE) == {"XY103:10": None, "XY104:12": "XY103:10", "XY104:80": None}


def test_the_cause_knows_what_it_explains_and_the_finding_says_why() -> None:
    cause, effect = nested([finding("XY103", 10), finding("XY104", 10)], {"XY103": VALUE, "XY104": LIMIT})
    assert cause.children == (effect.fingerprint,)
    assert effect.because == "each value costs a compilation"


def test_the_dearest_of_several_causes_is_taken() -> None:
    found = [finding("XY103", 10, 5, 44), finding("XY103", 11, 9, 44), finding("XY104", 44)]
    assert causes(found, LIMIT, VALUE)["XY104:44"] == "XY103:11"


def test_an_accepted_finding_is_no_cause_and_needs_none() -> None:
    accepted = replace(finding("XY103", 10), accepted="on purpose")
    assert causes([accepted, finding("XY104", 10)], LIMIT, VALUE)["XY104:10"] is None
    assert (
        causes([finding("XY103", 10), replace(finding("XY104", 10), accepted="known")], LIMIT, VALUE)["XY104:10"]
        is None
    )


def test_a_function_is_shared_by_findings_on_any_of_its_lines() -> None:
    reads = rule("XY301", Cause("XY103", "function", "b"))
    found = [
        finding("XY103", 10, function="log"),
        finding("XY301", 14, function="log"),
        finding("XY301", 40, function="f"),
    ]
    assert causes(found, reads, VALUE) == {"XY103:10": None, "XY301:14": "XY103:10", "XY301:40": None}


@pytest.mark.parametrize(("cause_ns", "explained"), [(9, True), (5, True), (4, False)])
def test_over_a_whole_run_a_cause_must_be_worth_as_much(cause_ns: int, explained: bool) -> None:
    storm = rule("XY201", Cause("XY103", "run", "b"))
    found = [finding("XY103", 10, cause_ns), finding("XY201", 90, 5)]
    assert (causes(found, storm, VALUE)["XY201:90"] is not None) is explained


def test_a_rule_that_is_part_of_another_is_its_child_wherever_it_lies_and_whatever_it_is_worth() -> None:
    part = rule("XY401", Cause("XY402", "rule", "b"))
    found = [finding("XY401", 10, 9, function="f"), finding("XY402", 70, 5, function="g")]
    assert causes(found, part, rule("XY402")) == {"XY401:10": "XY402:70", "XY402:70": None}


def test_tf32_and_half_precision_are_one_finding() -> None:
    rules = {rule.id: rule for rule in load_rules(())}
    tf32, amp = finding("GD401", 10, 9), finding("GD402", 12, 5)
    both = nested([tf32, amp], rules)
    assert [found.explained_by for found in both] == [amp.fingerprint, None]
    alone = nested([tf32, replace(amp, accepted="float32 on purpose")], rules)
    assert [found.explained_by for found in alone] == [None, None]


def test_a_chain_of_causes_is_shown_under_its_first() -> None:
    last = rule("XY108", Cause("XY104", "place", "b"))
    found = nested(
        [finding("XY103", 10), finding("XY104", 10), finding("XY108", 10)],
        {rule.id: rule for rule in (VALUE, LIMIT, last)},
    )
    diagnosis = Diagnosis(run=Run("train.py"), findings=tuple(found))
    assert [finding.rule for finding in diagnosis.roots] == ["XY103"]
    assert [finding.rule for finding in diagnosis.explained(found[0])] == ["XY104", "XY108"]


def test_rules_that_explain_each_other_in_a_circle_are_refused() -> None:
    one, other = rule("XY001", Cause("XY002", "run", "b")), rule("XY002", Cause("XY001", "run", "b"))
    with pytest.raises(RuleError, match="circle"):
        check_causes([one, other])


def test_a_cause_that_is_no_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(RuleError, match="'XY10', which is no rule"):
        check_causes([VALUE, rule("XY104", Cause("XY10", "run", "b"))])


def test_a_wrong_share_is_refused() -> None:
    front = FRONT + '[[explained_by]]\nrule = "XY103"\nshare = "file"\nbecause = "b"\n'
    with pytest.raises(RuleError, match="place, function, run, rule"):
        parse_rule(rule_text(front=front), Path("x.md"))


def test_the_built_in_rules_explain_each_other_without_a_circle() -> None:
    rules = load_rules(())
    check_causes(rules)
    assert any(rule.explained_by for rule in rules)
