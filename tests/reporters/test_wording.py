"""The words that the formats share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoctor.diagnosis import Diagnosis, Run
from gpudoctor.reporters import wording

from . import diagnoses


def test_hidden_characters_become_escapes() -> None:
    assert wording.one_line("a\x1b[31m\u202eb\udc80\n  c") == "a\\x1b[31m\\u202eb\\udc80 c"
    assert wording.code_line("\tx = 1\r\n") == "\tx = 1"
    assert wording.one_line("模型 שלום µs ≤ 🏷") == "模型 שלום µs ≤ 🏷"


def test_the_command_is_quoted_for_a_shell() -> None:
    assert wording.command(Run("my train.py", ("--a b",)), "--select", "GD1") == (
        "gpudoctor check 'my train.py' --select GD1 -- '--a b'"
    )
    assert wording.command(Run("-m pkg.train")) == "gpudoctor check -m pkg.train"


def test_the_largest_saving_is_one_finding_and_never_a_sum() -> None:
    fact = wording.facts(diagnoses.realistic())[1]
    assert (fact.label, fact.value) == ("Largest single saving", "≤ 1.61 ms")
    assert "GD101" in fact.note


def test_five_facts_whatever_is_known() -> None:
    for make in diagnoses.ALL.values():
        assert len(wording.facts(make())) == 5


def test_facts_that_were_not_measured_say_so() -> None:
    known = {fact.label: fact.known for fact in wording.facts(diagnoses.empty())}
    assert not any(known.values())
    assert all("0" not in fact.value for fact in wording.facts(diagnoses.empty()))


def test_a_diagnosis_without_a_verdict_still_gets_one() -> None:
    realistic = diagnoses.realistic()
    assert wording.verdict(replace(realistic, verdict="")) == "A step takes 5.12 ms."
    untimed = replace(realistic, verdict="", run=replace(realistic.run, step_ns=None))
    assert wording.verdict(untimed) == "Inconclusive: no step could be timed."


def test_nothing_found_names_what_could_not_be_judged() -> None:
    partly = replace(diagnoses.clean(), not_measured=diagnoses.realistic().not_measured)
    assert wording.nothing_found(partly) == "Nothing found on the 1 rule judged. 5 rules could not be judged."


@pytest.mark.parametrize(("profiled_ns", "value"), [(1_210_000, "+21 %"), (1_000_100, "< 0.1 %"), (990_000, "none")])
def test_the_overhead_has_one_sign(profiled_ns: int, value: str) -> None:
    run = Run("train.py", step_ns=1_000_000, step_count=20, profiled_step_ns=profiled_ns, steps=30)
    assert wording.facts(Diagnosis(run=run))[4].value == value
