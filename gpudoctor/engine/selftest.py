"""Runs the examples that a rule file carries: `gpudoctor rules test`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpudoctor.config import Config
from gpudoctor.diagnosis import Finding
from gpudoctor.engine.contract import check_tables, check_texts, example_profile
from gpudoctor.engine.rule import Example, Rule
from gpudoctor.engine.run import diagnose
from gpudoctor.errors import GpuDoctorError, RuleError
from gpudoctor.profile import Profile, empty


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing in a rule file that is not as it says: the rule, the line of the example (0: none), and what."""

    rule: str
    file: str
    line: int
    reason: str


def check_rule(rule: Rule) -> tuple[Failure, ...]:
    """Runs a rule on its examples and on an empty profile.

    Checks that each example gives as many findings as it says, that their texts render, that the findings have what
    `[[finding]]` tables ask for, that there is a bad and a good example, and that nothing is found in empty tables.

    Returns:
        What failed; empty when the rule does what its file says.
    """
    failures: list[Failure] = []
    try:
        check_tables(rule)
        check_texts(rule)
    except RuleError as error:
        return (_failure(rule, 0, str(error)),)
    for kind, present in (
        ("bad", any(e.expect for e in rule.examples)),
        ("good", any(not e.expect for e in rule.examples)),
    ):
        if not present:
            failures.append(_failure(rule, 0, f"has no {kind} example; add a block ```toml {kind} under `## Examples`"))
    for example in rule.examples:
        failures += [_failure(rule, example.line, reason) for reason in _example_faults(rule, example)]
    nothing = Profile({name: empty(name) for name in rule.tables})
    failures += [_failure(rule, 0, f"on empty tables: {reason}") for reason in _faults(rule, nothing, 0, ())]
    return tuple(failures)


def _example_faults(rule: Rule, example: Example) -> list[str]:
    try:
        profile = example_profile(rule, example)
    except OverflowError:
        return ["its tables cannot be built: a whole number is outside the 64 bits that a column has"]
    except (GpuDoctorError, TypeError, ValueError) as error:
        return [f"its tables cannot be built: {error}"]
    return _faults(rule, profile, example.expect, example.findings)


def _faults(rule: Rule, profile: Profile, expect: int, wanted: tuple[Mapping[str, Any], ...]) -> list[str]:
    try:
        outcome = diagnose(profile, [replace(rule, status="stable")], config=Config(), strict=True, replayed=False)
    except GpuDoctorError as error:
        return [str(error)]
    found = outcome.findings
    if len(found) != expect:
        said = "".join(f"; {finding.message}" for finding in found[:3])
        said += "".join(f"; not measured: {missing.reason}" for missing in outcome.not_measured)
        return [f"gives {len(found)} findings, expected {expect}{said}"]
    return [fault for finding, want in zip(found, wanted, strict=False) for fault in _differences(finding, want)]


def _differences(finding: Finding, want: Mapping[str, Any]) -> list[str]:
    faults = []
    for key, value in want.items():
        try:
            actual = _facts(finding)[key]
        except KeyError:
            return [f"[[finding]] has no key {key!r}; the keys are {', '.join(_facts(finding))}"]
        if key in ("message", "diff") and isinstance(actual, str) and isinstance(value, str):
            if value not in actual:
                faults.append(f"the finding's {key} is {actual!r}, which does not contain {value!r}")
        elif actual != value:
            faults.append(f"the finding's {key} is {actual!r}, expected {value!r}")
    return faults


def _facts(finding: Finding) -> dict[str, Any]:
    """What `[[finding]]` can ask for. `accepted` is a boolean, `message` and `diff` are parts of the text."""
    where, saving, remedy = finding.where, finding.saving, finding.remedy
    return {
        "file": where.file if where else "",
        "line": where.line if where else 0,
        "function": (where.function or "") if where else "",
        "severity": finding.severity,
        "message": finding.message,
        "count": finding.count,
        "saving_ns": saving.ns_per_step if saving else 0,
        "remedy": remedy.name if remedy else "",
        "diff": (remedy.diff or "") if remedy else "",
        "locations": [place.role for place in finding.locations],
        "accepted": finding.accepted is not None,
    }


def _failure(rule: Rule, line: int, reason: str) -> Failure:
    return Failure(rule.id, str(rule.path), line, reason)
