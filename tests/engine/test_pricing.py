"""What rules say of the edits that price their findings, and how findings add up."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.diagnosis import Finding
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.run import Outcome, diagnose
from gpudoctor.errors import RuleError
from tests.analysis.tiny_traces import Tiny

from .rule_text import FRONT, make_rule


def recorded() -> Tiny:
    """Three steps of 1 ms, each of four kernels of 200 µs that the host waits for."""
    tiny = Tiny()
    for step in range(3):
        begin = 1000 * step
        tiny.step(begin, begin + 1000)
        for number in range(4):
            tiny.launch(begin + 10 + 10 * number, begin + 20 + 201 * number, begin + 220 + 201 * number)
        tiny.call(begin + 60, begin + 830, "cudaDeviceSynchronize", kind="sync")
    return tiny


def rule(columns: str, what_if: str, number: int = 1, remedies: str = "") -> Rule:
    front = FRONT.replace("XY001", f"XY00{number}").replace("slow-step", f"slow-step{number}")
    front += f'optional = ["kernels", "ops"]\nwhat_if = {{ {what_if} }}\n{remedies}'
    return make_rule(front=front, thresholds="", sql=f"SELECT {columns}", Message="It is slow.")


def found(*rules: Rule) -> Outcome:
    return diagnose(recorded().profile(step_ns=1_000_000), rules)


def only(columns: str, what_if: str, **more: Any) -> Finding:
    (finding,) = found(rule(columns, what_if, **more)).findings
    return finding


ALL = "(SELECT list(kernel) FROM kernels) AS events"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("['a'] AS events", "column events"),
        ("['1'] AS events", "column events"),
        ("3 AS events", "column events"),
        ("'abc' AS events", "column events"),
        ("[1.5] AS events", "column events"),
        ("[true] AS events", "column events"),
        ("[[1]] AS events", "column events"),
        ("{'a': 1} AS events", "column events"),
        ("[{'a': 1}] AS events", "column events"),
        ("[1] AS events, 'half' AS remains", "column remains"),
        ("[1] AS events, [0.5] AS remains", "column remains"),
        ("[1] AS events, true AS remains", "column remains"),
        ("[1] AS events, 'x' AS least_ns", "column least_ns"),
        ("[1] AS events, [1] AS most_ns", "column most_ns"),
    ],
)
def test_a_column_of_the_wrong_kind_is_the_rules_error(columns: str, said: str) -> None:
    with pytest.raises(RuleError, match=f"XY001.*{said}"):
        found(rule(f"500000 AS cost_ns, {columns}", 'edit = "scale"'))


@pytest.mark.parametrize(
    "events",
    [
        "NULL",
        "[]",
        "[NULL]",
        "[-1, 999]",
        "[9223372036854775807]",
        "[170141183460469231731687303715884105727::hugeint]",
        "['nan'::double]",
    ],
)
def test_events_that_are_none_leave_the_rules_own_estimate(events: str) -> None:
    saving = only(f"500000 AS cost_ns, {events} AS events", 'edit = "drop"').saving
    assert saving is not None
    assert (saving.grade, saving.ns_per_step) == ("estimated", 500_000)


def test_events_count_once_and_unknown_ones_not() -> None:
    once = only(f"500000 AS cost_ns, {ALL}", 'edit = "drop"').saving
    twice = "(SELECT list(kernel) FROM kernels) || (SELECT list(kernel + 0.0) FROM kernels) || [NULL, 999]"
    again = only(f"500000 AS cost_ns, {twice} AS events", 'edit = "drop"').saving
    assert once is not None
    assert once.grade == "simulated"
    assert once == again


@pytest.mark.parametrize(("remains", "like"), [("-5", "0"), ("0.0", "0"), ("'nan'::double", "NULL"), ("7", "1.0")])
def test_what_remains_is_a_share(remains: str, like: str) -> None:
    def saved(value: str) -> list[Finding]:
        return list(found(rule(f"500000 AS cost_ns, {ALL}, {value} AS remains", 'edit = "scale"')).findings)

    assert saved(remains) == saved(like)
    assert len(saved(remains)) == (0 if like == "1.0" else 1)


REMEDIES = "[remedies.shorten]\ntext = 'x'\n[remedies.remove]\ntext = 'y'\n"


def test_a_remedy_that_a_row_does_not_name_is_the_first_and_has_its_edit() -> None:
    what_if = 'edit = "drop", remedies = { shorten = "scale" }'
    columns = f"500000 AS cost_ns, {ALL}, 0.5 AS remains"
    named = only(f"{columns}, 'shorten' AS remedy", what_if, remedies=REMEDIES)
    assert only(columns, what_if, remedies=REMEDIES).saving == named.saving
    removed = only(f"{columns}, 'remove' AS remedy", what_if, remedies=REMEDIES).saving
    assert removed is not None
    assert named.saving is not None
    assert removed.ns_per_step > named.saving.ns_per_step


def test_two_rules_that_edit_the_same_events_save_them_once() -> None:
    columns = f"500000 AS cost_ns, {ALL}"
    first, second = rule(columns, 'edit = "drop"', 1), rule(columns, 'edit = "drop"', 2)
    outcome = found(first, second)
    root, child = outcome.findings
    assert (root.explained_by, child.explained_by) == (None, root.fingerprint)
    assert root.saving is not None
    assert child.saving is not None
    assert (root.saving.adds_ns, child.saving.adds_ns) == (root.saving.ns_per_step, 0)
    assert outcome.replay is not None
    assert outcome.replay.together is not None
    assert outcome.replay.together.ns_per_step == root.saving.ns_per_step
