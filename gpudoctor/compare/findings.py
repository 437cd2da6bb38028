"""Findings of two revisions: new, fixed, and those that happen more or less often."""

from __future__ import annotations

from collections.abc import Callable

from gpudoctor.compare.model import FindingChange, FindingStatus
from gpudoctor.diagnosis import Diagnosis, Finding

_ORDER: tuple[FindingStatus, ...] = ("new", "worse", "fixed", "better")


def finding_changes(base: Diagnosis, head: Diagnosis) -> tuple[tuple[FindingChange, ...], int]:
    """What changed among the findings that count, and how many stayed as they were.

    A finding is the same when its fingerprint is; else when its rule is, with the same statement in another place, or
    with another statement in the same function of the same file.
    """
    left, right = list(base.live), list(head.live)
    found: list[tuple[Finding, Finding]] = []
    for key in (_fingerprint, _statement, _function, _file):
        left, right = _match(left, right, key, found)
    made = [FindingChange("new", finding) for finding in right]
    made += [FindingChange("fixed", finding) for finding in left if _judged(head, finding)]
    for before, after in found:
        status = _status(before, after)
        if status != "same":
            made.append(FindingChange(status, after, before))
    kept = sum(_status(*pair) == "same" for pair in found)
    return tuple(sorted(made, key=lambda change: _ORDER.index(change.status))), kept


def _judged(head: Diagnosis, finding: Finding) -> bool:
    """Whether the head could have had it: a rule that was not measured fixes nothing."""
    return finding.rule not in {rule.rule for rule in head.not_measured}


def _status(before: Finding, after: Finding) -> FindingStatus:
    if before.count is None or after.count is None or before.count == after.count:
        return "same"
    return "worse" if after.count > before.count else "better"


def _match(
    left: list[Finding],
    right: list[Finding],
    key: Callable[[Finding], tuple[object, ...]],
    found: list[tuple[Finding, Finding]],
) -> tuple[list[Finding], list[Finding]]:
    rest: list[Finding] = []
    for after in right:
        before = next((one for one in left if key(one) == key(after)), None)
        if before is None:
            rest.append(after)
        else:
            left = [one for one in left if one is not before]
            found.append((before, after))
    return left, rest


def _fingerprint(finding: Finding) -> tuple[object, ...]:
    return (finding.fingerprint or id(finding),)


def _statement(finding: Finding) -> tuple[object, ...]:
    text = " ".join(culprit(finding).split())
    return (finding.rule, text) if text else (id(finding),)


def _function(finding: Finding) -> tuple[object, ...]:
    where = finding.where
    return (finding.rule, where.file, where.function) if where else (finding.rule, None)


def _file(finding: Finding) -> tuple[object, ...]:
    return (finding.rule, finding.where.file) if finding.where else (finding.rule, None)


def culprit(finding: Finding) -> str:
    """Text of the line that a finding is about; empty without an excerpt."""
    return next((line.text.strip() for line in finding.excerpt if line.culprit), "")
