"""Makes a Finding of one row of a rule's query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from gpudoctor.diagnosis import SEVERITIES, Finding, Location, Remedy, Saving, Severity
from gpudoctor.engine.edited import events_of, remains_of
from gpudoctor.engine.editing import propose
from gpudoctor.engine.evidence import evidence_of
from gpudoctor.engine.messages import render, render_line
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.source import enclosing_function, excerpt
from gpudoctor.engine.suppression import suppressed
from gpudoctor.errors import RuleError

ERROR_SHARE = 0.20
"""Share of the step from which a finding is an error: a fifth is worth stopping for (the catalogue's scale)."""

WARNING_SHARE = 0.03
"""Share from which it is a warning: below 3 % a fix can hardly be told from the noise of step times."""


def make_finding(rule: Rule, row: Mapping[str, Any], sources: Mapping[str, str], step_ns: int | None) -> Finding:
    """Makes the finding of a row, without its fingerprint.

    Args:
        rule: the rule.
        row: columns by the contract in docs/rules.md.
        sources: text of the user's files by path.
        step_ns: median time of an unprofiled steady step; None leaves the finding without a saving.

    Raises:
        RuleError: a contract column has a value that it must not have, or a text cannot be rendered.
    """
    _check_price(rule, row)
    saving = _saving(rule, row, step_ns)
    where = _location(rule, row, sources)
    text = sources.get(where.file) if where else None
    accepted = _optional_text(rule, row, "accepted")
    if accepted is None and where and text is not None:
        accepted = suppressed(text, where.line, rule.id, rule.name)
    locations = _locations(rule, row, sources, where)
    return Finding(
        rule=rule.id,
        name=rule.name,
        title=rule.title,
        severity=severity_of(rule, _severity_column(rule, row), saving),
        message=render_line(rule.message, row, _at(rule)),
        where=where,
        locations=locations,
        count=_integer(rule, row, "count"),
        saving=saving,
        evidence=evidence_of(row, rule.evidence_title),
        remedy=_remedy(rule, row, sources, where, locations),
        excerpt=excerpt(text, where.line) if where and text is not None else (),
        accepted=accepted,
        when_wrong=rule.sections["When this is wrong"],
    )


def _check_price(rule: Rule, row: Mapping[str, Any]) -> None:
    """Checks the columns that are read later, and only where something is replayed."""
    events_of(row, _at(rule))
    remains_of(row, _at(rule))
    for name in ("least_ns", "most_ns", "mean_step_ns"):
        _time(rule, row, name)


def severity_of(rule: Rule, override: Severity | None, saving: Saving | None) -> Severity:
    """The row's own severity, else the saving's share on the scale, else the rule's default; capped by the rule."""
    if override is not None:
        severity = override
    elif saving is None or not saving.of_time:
        severity = rule.severity
    else:
        share = _certain_share(saving)
        severity = "error" if share >= ERROR_SHARE else "warning" if share >= WARNING_SHARE else "info"
    cap = rule.max_severity
    return severity if cap is None else max(severity, cap, key=SEVERITIES.index)


def _certain_share(saving: Saving) -> float:
    """The share that counts: of a range the lower end, and more where a fix adds more once others are made."""
    if saving.low_ns is None or not saving.ns_per_step:
        return saving.share
    adds = 1.0 if saving.adds_ns is None else max(1.0, saving.adds_ns / saving.ns_per_step)
    return min(1.0, saving.share * adds * min(1.0, saving.low_ns / saving.ns_per_step))


def judged_again(rule: Rule, row: Mapping[str, Any], finding: Finding) -> Finding:
    """The finding with the severity of its present saving; the row's own severity says nothing of a replayed one."""
    replayed = finding.saving is not None and finding.saving.grade == "simulated"
    override = None if replayed else _severity_column(rule, row)
    return replace(finding, severity=severity_of(rule, override, finding.saving))


def _saving(rule: Rule, row: Mapping[str, Any], step_ns: int | None) -> Saving | None:
    """What a row's time is worth, and its memory and compile time, each in its own unit.

    Costs of a step or an epoch lie inside the median step, so their share is of that. Those of a whole run (compiling)
    lie outside it: their share is of the mean step, which is the median plus the cost.
    """
    cost = _time(rule, row, "cost_ns")
    memory, compiling = _integer(rule, row, "memory_bytes"), _integer(rule, row, "compile_ns")
    timed = cost is not None and bool(step_ns)
    if not timed and not memory and not compiling:
        return None
    saving = Saving(0, 0.0, memory_bytes=memory or None, compile_ns=compiling or None)
    basis = _optional_text(rule, row, "saving_basis")
    if basis is not None:
        saving = replace(saving, basis=basis)
    if not timed or cost is None or not step_ns:
        return saving
    ns, mean = cost, _time(rule, row, "mean_step_ns")
    if mean:
        return replace(saving, ns_per_step=min(ns, mean), share=min(1.0, ns / mean))
    if rule.horizon != "run":
        ns = min(ns, step_ns)  # a mean over steps can exceed the median step; nothing saves more than the step
    whole = step_ns + ns if rule.horizon == "run" else step_ns
    return replace(saving, ns_per_step=ns, share=min(1.0, ns / whole))


def with_range(rule: Rule, row: Mapping[str, Any], finding: Finding, step_ns: int | None) -> Finding:
    """The finding with the least and the most that its rule says a fix saves.

    The least: workers, say, may find no core that is free. The most: how much of a profiled time is the profiler's is
    known for whole steps only, and unprofiled steps can wait longer than those that were replayed. They widen the range
    that readers see. The severity is not of it: it is how bad the problem is, not how good a fix.
    """
    saving, least = finding.saving, _time(rule, row, "least_ns")
    most = _time(rule, row, "most_ns")
    if saving is None or not saving.ns_per_step or (least is None and most is None):
        return finding
    low = saving.ns_per_step if saving.low_ns is None else saving.low_ns
    high = saving.ns_per_step if saving.high_ns is None else saving.high_ns
    low = low if least is None else min(least, low)
    whole = _time(rule, row, "mean_step_ns") or step_ns
    high = high if most is None or whole is None else max(high, min(most, whole))
    return replace(finding, saving=replace(saving, low_ns=low, high_ns=high))


def _time(rule: Rule, row: Mapping[str, Any], name: str) -> int | None:
    """A column of nanoseconds a step, at least 0; None where it is null or missing."""
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RuleError(f"{_at(rule)}: column {name} is {value!r}; it must be nanoseconds a step or null")
    return max(0, round(value))


def _severity_column(rule: Rule, row: Mapping[str, Any]) -> Severity | None:
    value = row.get("severity")
    if value is not None and value not in SEVERITIES:
        raise RuleError(f"{_at(rule)}: column severity is {value!r}; it must be one of {', '.join(SEVERITIES)} or null")
    return cast("Severity | None", value)


def _location(rule: Rule, row: Mapping[str, Any], sources: Mapping[str, str]) -> Location | None:
    """The place a row or a struct of `locations` names; None without a file or a line."""
    file, line = _optional_text(rule, row, "file"), _integer(rule, row, "line")
    if file is None or line is None:
        return None
    text = sources.get(file)
    function = _optional_text(rule, row, "function") or (enclosing_function(text, line) if text is not None else None)
    return Location(
        file=file,
        line=line,
        precision=_optional_text(rule, row, "precision") or "call",
        function=function,
        module=_optional_text(rule, row, "module"),
        role=_optional_text(rule, row, "role"),
    )


def _locations(
    rule: Rule, row: Mapping[str, Any], sources: Mapping[str, str], where: Location | None
) -> tuple[Location, ...]:
    """The other places, each line once, in the row's order."""
    found: dict[tuple[str, int], Location] = {}
    for item in row.get("locations") or []:
        if not isinstance(item, dict):
            raise RuleError(f"{_at(rule)}: column locations must be a list of structs with file, line and role")
        place = _location(rule, item, sources)
        if place and (where is None or (place.file, place.line) != (where.file, where.line)):
            found.setdefault((place.file, place.line), place)
    return tuple(found.values())


def _remedy(
    rule: Rule,
    row: Mapping[str, Any],
    sources: Mapping[str, str],
    where: Location | None,
    locations: tuple[Location, ...],
) -> Remedy | None:
    if not rule.remedies:
        return None
    name = _optional_text(rule, row, "remedy") or next(iter(rule.remedies))
    if name not in rule.remedies:
        raise RuleError(f"{_at(rule)}: column remedy is {name!r}; [remedies] has {', '.join(rule.remedies)}")
    remedy = rule.remedies[name]
    text = render(remedy.text, row, _at(rule))
    proposed = propose(remedy.edit, row, sources, (where, *locations), _at(rule)) if remedy.edit else None
    diff, change = proposed or (None, None)
    return Remedy(name, text, diff, remedy.risk, change)


def _optional_text(rule: Rule, row: Mapping[str, Any], column: str) -> str | None:
    value = row.get(column)
    if value is not None and not isinstance(value, str):
        raise RuleError(f"{_at(rule)}: column {column} is {value!r}; it must be a text or null")
    return value or None


def _integer(rule: Rule, row: Mapping[str, Any], column: str) -> int | None:
    value = row.get(column)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise RuleError(f"{_at(rule)}: column {column} is {value!r}; it must be a whole number or null")
    return value


def _at(rule: Rule) -> str:
    return f"{rule.id} ({rule.path.name})"
