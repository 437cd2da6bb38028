"""Two sets of diagnoses → one Comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import gpudoctor
from gpudoctor.compare.counters import counter_changes
from gpudoctor.compare.edits import edits
from gpudoctor.compare.findings import finding_changes
from gpudoctor.compare.model import Comparison, CounterChange, Regression, Side, TimeChange, Verdict
from gpudoctor.compare.regressions import regressions
from gpudoctor.compare.times import time_change, why_refused
from gpudoctor.counting import amount
from gpudoctor.diagnosis import Diagnosis, run_failed
from gpudoctor.errors import UsageError
from gpudoctor.units import format_share, plural

FEWER_STEPS = 0.5
"""Share of the base's steps below which the head is another run: what compiles late had no chance to."""
_WORK = ("operators_per_step", "autograd_nodes_per_step", "kernels_per_step")
"""Counters that no training step has zero of, when its base has not."""
_COMPILED = "graph_operators"


def compare(
    base: Sequence[Diagnosis],
    head: Sequence[Diagnosis],
    labels: tuple[str, str] = ("base", "head"),
    *,
    pairs: bool = False,
    gate_time: bool = False,
    tolerance: Mapping[str, float] | None = None,
    sources: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
) -> Comparison:
    """What changed from base to head.

    Args:
        base: diagnoses of one or more runs of the base.
        head: of the head; counters and findings are those of the first run, the others show what repeats.
        labels: what the two are called.
        pairs: the runs were made in turns, base and head at one place belong together.
        gate_time: a slower step is worse, and not only said.
        tolerance: by how much single counters may rise, as a share.
        sources: text of the files of both revisions by path, to lay what rose to the statements that were edited.

    Raises:
        UsageError: a side has no run.
    """
    if not base or not head:
        raise UsageError("nothing to compare: each side needs at least one diagnosis")
    first, second = base[0], head[0]
    counters = _without_compile(counter_changes(base, head, tolerance or {}))
    found, kept = finding_changes(first, second)
    refused = why_refused(first.run, second.run)
    times = tuple(tuple(one.run.step_ns for one in side if one.run.step_ns) for side in (base, head))
    whole = pairs and all(one.run.step_ns for one in (*base, *head))
    time = None if refused else time_change(times[0], times[1], whole)
    made = regressions(counters, found, edits(*sources) if sources else None)
    inconclusive = _inconclusive(base, head, counters)
    verdict = _verdict(inconclusive, counters, time, gate_time)
    return Comparison(
        base=Side(labels[0], first.run, times[0], len(base)),
        head=Side(labels[1], second.run, times[1], len(head)),
        verdict=verdict,
        sentence=_sentence(verdict, counters, made, inconclusive, time),
        counters=counters,
        regressions=made,
        findings=found,
        kept=kept,
        time=time,
        time_refused=refused,
        inconclusive=inconclusive,
        caveats=_caveats(first, second),
        gpudoctor=gpudoctor.__version__,
    )


def _without_compile(counters: tuple[CounterChange, ...]) -> tuple[CounterChange, ...]:
    """Where nothing is compiled any more that is worse, and fewer graphs or breaks are no progress."""
    lost = any(change.name == _COMPILED and change.base and change.head == 0 for change in counters)
    if not lost:
        return counters
    why = "nothing is compiled any more"
    return tuple(
        replace(change, verdict="worse", reason=why)
        if change.name == _COMPILED
        else replace(change, verdict="changed", reason=why)
        if change.scope == "run" and change.verdict == "better"
        else change
        for change in counters
    )


def _inconclusive(
    base: Sequence[Diagnosis], head: Sequence[Diagnosis], counters: Sequence[CounterChange]
) -> tuple[str, ...]:
    """Why nothing is decided."""
    reasons = [
        f"a run of the {side} {run_failed(one.run)}"
        for side, runs in (("base", base), ("head", head))
        for one in runs
        if run_failed(one.run)
    ]
    for side, one in (("base", base[0]), ("head", head[0])):
        if not one.run.steps and not one.run.stepless:
            reasons.append(f"no training step was seen in the {side}")
    before, after = base[0].run, head[0].run
    if not reasons and after.steps < before.steps * FEWER_STEPS:
        reasons.append(f"the head took {plural(after.steps, 'step')}, the base {before.steps}")
    if not reasons and before.step_source != after.step_source and not before.stepless:
        reasons.append(
            f"a step is another thing: it ends with {before.step_source}, in the head with {after.step_source}"
        )
    if reasons:
        return tuple(reasons)
    for change in counters:
        if change.name in _WORK and change.base and change.head == 0:
            reasons.append(f"the head does no such work any more: {change.title} {change.base} before, 0 now")
        if change.base is not None and change.head is None:
            reasons.append(f"{change.title}: measured in the base only ({change.reason})")
    return tuple(reasons)


def _verdict(
    inconclusive: Sequence[str], counters: Sequence[CounterChange], time: TimeChange | None, gate_time: bool
) -> Verdict:
    if inconclusive:
        return "inconclusive"
    said = {change.verdict for change in counters}
    timed = time.verdict if time else ""
    if "worse" in said or (gate_time and timed == "slower"):
        return "worse"
    if not said & {"better", "same"}:
        return "inconclusive"
    return "better" if "better" in said or (gate_time and timed == "faster") else "same"


def _sentence(
    verdict: Verdict,
    counters: Sequence[CounterChange],
    made: Sequence[Regression],
    inconclusive: Sequence[str],
    time: TimeChange | None,
) -> str:
    if verdict == "inconclusive":
        return f"Inconclusive: {inconclusive[0] if inconclusive else 'no counter was measured in both'}."
    worse = [change for change in counters if change.verdict == "worse"]
    better = [change for change in counters if change.verdict == "better"]
    if worse:
        by_name = {change.name: change for change in worse}
        first = next((by_name[one.counters[0]] for one in made), worse[0])
        where = next((f" at {one.where}" for one in made if one.where and first.name in one.counters), "")
        went = f"{first.title} {amount(first.base, first.unit)} → {amount(first.head, first.unit)}{where}"
        return f"Worse: {plural(len(worse), 'counter')} got worse, first {went}."
    if verdict == "worse" and time:
        return f"Worse: the step takes {format_share(time.ratio - 1)} longer."
    if better:
        first = better[0]
        fell = f"{first.title} {amount(first.base, first.unit)} → {amount(first.head, first.unit)}"
        return f"Better: {plural(len(better), 'counter')} fell, first {fell}; none rose."
    if verdict == "better" and time:
        return f"Better: the step takes {format_share(1 - time.ratio)} less."
    same = sum(change.verdict == "same" for change in counters)
    return f"Same: {plural(same, 'counter')} measured in both, none rose."


def _caveats(base: Diagnosis, head: Diagnosis) -> tuple[str, ...]:
    said = []
    if base.run.steps != head.run.steps:
        said.append(
            f"the base took {plural(base.run.steps, 'step')}, the head {head.run.steps}: counts of the whole run can "
            "differ for that alone"
        )
    if base.run.torch != head.run.torch:
        said.append("another torch runs other operators for the same code: counters can differ for that alone")
    if base.gpudoctor != head.gpudoctor:
        said.append(f"the diagnoses are of gpudoctor {base.gpudoctor} and {head.gpudoctor}: diagnose both again")
    return tuple(said)
