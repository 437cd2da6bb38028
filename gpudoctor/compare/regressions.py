"""What got worse, by line of the head: counters that rose there, and the findings that explain it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudoctor.compare.edits import Edit, used
from gpudoctor.compare.model import CounterChange, FindingChange, LineChange, Regression
from gpudoctor.counting import amount
from gpudoctor.diagnosis import Finding, Location
from gpudoctor.engine.fingerprint import DIGITS

_TELLING = (
    "graph_breaks", "recompiles", "recompile_limits", "compile_failures", "graph_operators", "host_reads_per_step",
    "syncs_per_step", "dtype_conversions_per_step", "h2d_copies_per_step", "d2h_copies_per_step", "operators_per_step",
)  # fmt: skip
"""Counters that say what happened, those that say most first; the others follow from it."""
MOST_ALSO = 8
"""Further places named with one regression."""


@dataclass(slots=True)
class _Cause:
    """One line that made something worse, and what did.

    Attributes:
        where: the line.
        text: its statement.
        edited: the statement is not in the base.
        rises: counters, and by how much.
        also: lines at which they rose.
        findings: new or worse findings at one of these lines.
    """

    where: Location
    text: str
    edited: bool
    rises: dict[str, int] = field(default_factory=dict)
    also: list[Location] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def regressions(
    counters: Sequence[CounterChange], findings: Sequence[FindingChange], edits: Sequence[Edit] | None = None
) -> tuple[Regression, ...]:
    """What got worse, those first whose counters tell most.

    A counter often rises at lines that nobody touched: an optimizer that lost `fused=True` runs its operators where it
    steps. Each such line is laid to the edited statement that it depends on, as far as that can be said.

    Args:
        counters: every counter of both revisions.
        findings: what changed among the findings.
        edits: statements that were edited; None where the sources are not known.
    """
    worse = {change.name: change for change in counters if change.verdict == "worse"}
    causes: dict[tuple[str, int], _Cause] = {}
    for change in worse.values():
        for line in change.lines:
            by = line.head - line.base
            if by and (by > 0) == ((change.delta or 0) > 0):
                cause = _cause(line, edits, causes)
                cause.rises[change.name] = cause.rises.get(change.name, 0) + by
                here = Location(line.file, line.line, function=line.function)
                if (here.file, here.line) != (cause.where.file, cause.where.line) and here not in cause.also:
                    cause.also.append(here)
    _explain(causes, [change.finding for change in findings if change.status in ("new", "worse")])
    ranked = sorted(causes.values(), key=_rank)
    placed = {name for cause in ranked for name in cause.rises}
    rest = {name: change.delta or 0 for name, change in worse.items() if name not in placed}
    if ranked:
        ranked[0].rises |= rest  # counters without lines follow from those that have some
    made = [_regression(cause, worse) for cause in ranked]
    return (_nowhere(rest, worse),) if rest and not made else tuple(made)


def _cause(line: LineChange, edits: Sequence[Edit] | None, causes: dict[tuple[str, int], _Cause]) -> _Cause:
    edit = _edit_behind(line, edits) if edits else None
    if edit is None or edit.line <= line.line <= edit.last:
        own = Location(line.file, line.line, function=line.function)
        return causes.setdefault((line.file, line.line), _Cause(own, line.text, edit is not None or line.edited))
    found = causes.get((edit.file, edit.line))
    if found is None:
        text = f"(removed) {edit.text}" if edit.removed else edit.text
        found = _Cause(Location(edit.file, edit.line, function=edit.function), text, edited=True)
        causes[edit.file, edit.line] = found
    return found


def _edit_behind(line: LineChange, edits: Sequence[Edit]) -> Edit | None:
    """The edited statement that a line's rise is laid to: itself, what makes a name it reads, or the likeliest one."""
    own = [
        edit for edit in edits if edit.file == line.file and edit.line <= line.line <= edit.last and not edit.removed
    ]
    if own:
        return max(own, key=lambda edit: edit.line)
    names = used(line.text)
    makers = [edit for edit in edits if edit.binds & names]
    same = [edit for edit in edits if edit.file == line.file and edit.function == line.function]
    for some in (makers, same, edits):
        fresh = [edit for edit in some if not edit.removed] or list(some)
        if fresh:
            return min(fresh, key=lambda edit: (edit.file != line.file, abs(edit.line - line.line)))
    return None


def _explain(causes: dict[tuple[str, int], _Cause], findings: Sequence[Finding]) -> None:
    """Ties new findings to the causes at their lines."""
    for finding in findings:
        places = {(where.file, where.line) for where in (finding.where, *finding.locations) if where is not None}
        for key, cause in causes.items():
            if places & {key, *((where.file, where.line) for where in cause.also)}:
                cause.findings.append(finding)
                break


def _rank(cause: _Cause) -> tuple[object, ...]:
    telling = [_TELLING.index(name) for name in cause.rises if name in _TELLING]
    return (
        not cause.edited,
        min(telling, default=len(_TELLING)),
        -sum(cause.rises.values()),
        cause.where.file,
        cause.where.line,
    )


def _regression(cause: _Cause, worse: dict[str, CounterChange]) -> Regression:
    names = sorted(cause.rises, key=lambda name: _TELLING.index(name) if name in _TELLING else len(_TELLING))
    parts = (names[0], cause.where.file, cause.where.function or "", cause.text)
    return Regression(
        where=cause.where,
        text=cause.text,
        message=_said({name: cause.rises[name] for name in names}, worse),
        counters=tuple(names),
        findings=tuple(finding.fingerprint for finding in cause.findings),
        also=tuple(cause.also)[:MOST_ALSO],
        fingerprint=_mark(parts),
    )


def _nowhere(rises: dict[str, int], worse: dict[str, CounterChange]) -> Regression:
    return Regression(None, "", _said(rises, worse), tuple(rises), fingerprint=_mark(tuple(rises)))


def _said(rises: dict[str, int], worse: dict[str, CounterChange]) -> str:
    return "; ".join(f"{worse[name].title} {_by(worse[name], by)}" for name, by in rises.items()) + "."


def _by(change: CounterChange, by: int) -> str:
    sign = "+" if by > 0 else "−"
    return f"{sign}{amount(abs(by), change.unit)}"


def _mark(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]
