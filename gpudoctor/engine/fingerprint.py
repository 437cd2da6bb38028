"""Fingerprints that survive line moves and new measurements, so that a baseline keeps what it accepted."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpudoctor.diagnosis import Finding
from gpudoctor.engine.source import enclosing_function, normalised_line

DIGITS = 16
"""Hexadecimal digits kept: 64 bits, so that a clash among a million findings is one in ten million."""


def with_fingerprints(findings: Sequence[Finding], sources: Mapping[str, str]) -> list[Finding]:
    """The findings, each with its fingerprint.

    It is made of the rule's id, the path, the enclosing function and the line's text without comment and extra blanks.
    Findings alike in all of these are told apart by their order in the file.

    Args:
        findings: of any rules, in any order.
        sources: text of the user's files by path.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    made: dict[int, str] = {}
    for i in sorted(range(len(findings)), key=lambda i: _line(findings[i])):
        key = _key(findings[i], sources)
        parts = key if not seen[key] else (*key, str(seen[key]))
        seen[key] += 1
        made[i] = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]
    return [replace(finding, fingerprint=made[i]) for i, finding in enumerate(findings)]


def _key(finding: Finding, sources: Mapping[str, str]) -> tuple[str, ...]:
    where = finding.where
    if where is None:
        return (finding.rule, "", "", "")
    text = sources.get(where.file, "")
    function = enclosing_function(text, where.line) or where.function or ""
    return (finding.rule, where.file.replace("\\", "/"), function, normalised_line(text, where.line))


def _line(finding: Finding) -> int:
    return finding.where.line if finding.where else 0
