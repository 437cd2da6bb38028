"""What each finding's fix saves, by replaying the profiled steps with it; which fixes add to which, and which do not.

A finding's saving is no sum of durations: a copy that hides behind computing costs nothing, and two fixes of the same
wait save it once. So the fixes are replayed one by one, then on top of each other in the order of what they add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpudoctor.analysis.simulate.edits import Edit
from gpudoctor.analysis.simulate.price import Priced, Simulation, simulation
from gpudoctor.analysis.simulate.targets import edit_of
from gpudoctor.diagnosis import Finding, Replay, Saving
from gpudoctor.engine.rule import Rule, WhatIf
from gpudoctor.profile import Profile
from gpudoctor.units import plural

MIN_SHARE = 0.01
"""Share of the step below which a finding on a device is none: the replay says that its fix saves nothing."""

VANISHED = 0.1
"""A fix adds nothing when this share of its own saving, at most, is left once another is made."""

_MAX_REPLAYS = 40
"""Replays for the ranking: of more than eight findings the last are ranked by what they added before."""

_NO_CAUSE = frozenset({"launch"})
"""Edits that stand for no single change of the code: they explain no other finding."""


@dataclass(frozen=True, slots=True)
class Made:
    """A finding, and the rule and row it was made of."""

    finding: Finding
    rule: Rule
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pricing:
    """What the replay says.

    Attributes:
        made: the findings with their savings, without those that cost nothing; in the order they came.
        replay: how far it is to be trusted, and what all fixes save together; None without a graph.
        causes: finding (its place in `made`) → place of the finding whose fix makes its own useless.
    """

    made: tuple[Made, ...]
    replay: Replay | None
    causes: Mapping[int, int]


@dataclass(slots=True)
class _Fix:
    """One finding's fix in the ranking."""

    place: int
    edit: Edit
    what_if: WhatIf
    priced: Priced
    adds: float = 0.0


def price(profile: Profile, made: Sequence[Made], step_ns: int | None) -> Pricing:
    """Replays what can be replayed.

    Args:
        profile: the tables.
        made: findings with the rows they were made of.
        step_ns: time of a step that savings are shares of, ns.
    """
    played = simulation(profile)
    if played is None:
        return Pricing(tuple(made), None, {})
    errors = played.errors
    facts = Replay(
        steps=len(errors),
        error=float(sorted(errors)[len(errors) // 2]),
        worst_error=float(errors.max()),
        opaque_share=played.opaque,
        refused=played.refused,
    )
    if facts.refused is not None or not step_ns:
        return Pricing(tuple(made), facts, {})
    scale = min(1.0, step_ns / max(1.0, played.step_ns))
    kept: list[Made] = []
    fixes: list[_Fix] = []
    for each in made:
        edit = _edit(profile, played, each)
        if edit is None or each.rule.what_if is None:
            kept.append(each)
            continue
        found = _scaled(played.price(edit, doubt=each.rule.what_if.doubt), scale)
        if len(played.graph.events.activities) and found.high < MIN_SHARE * step_ns:
            continue
        if each.finding.accepted is None:
            fixes.append(_Fix(len(kept), edit, each.rule.what_if, found))
        kept.append(replace(each, finding=replace(each.finding, saving=_saving(found, step_ns, facts.steps))))
    causes = _rank(played, fixes, scale)
    for fix in fixes:
        saving = kept[fix.place].finding.saving
        if saving is not None:
            added = replace(saving, adds_ns=min(round(fix.adds), step_ns))
            kept[fix.place] = replace(kept[fix.place], finding=replace(kept[fix.place].finding, saving=added))
    return Pricing(tuple(kept), replace(facts, together=_together(played, fixes, scale, step_ns)), causes)


def _edit(profile: Profile, played: Simulation, made: Made) -> Edit | None:
    what_if, row = made.rule.what_if, made.row
    events = row.get("events")
    if what_if is None or made.finding.saving is None or (not events and what_if.events != "all"):
        return None  # a rule that gives no price of its own says that the recording has none
    remedy = row.get("remedy")
    kind = what_if.remedies.get(remedy, what_if.edit) if isinstance(remedy, str) else what_if.edit
    ids = [int(event) for event in events or () if event is not None]
    remains = row.get("remains")
    if remains is None and kind == "scale":
        remains = _remaining(profile, what_if, row, ids)
        if remains is None:
            return None
    return edit_of(profile, played.graph, kind, what_if.events, ids, remains)


def _remaining(profile: Profile, what_if: WhatIf, row: Mapping[str, Any], ids: Sequence[int]) -> float | None:
    """Share of the events' time that remains when the row's cost is what goes of it."""
    table, key = {"kernels": ("kernels", "kernel"), "ops": ("ops", "op")}.get(what_if.events, ("", ""))
    cost = row.get("cost_ns")
    if not table or cost is None:
        return None
    rows = profile.table(table)
    rows = rows[rows[key].isin(ids)]
    step = "launch_step" if table == "kernels" else "step"
    steps = max(1, int(rows[step].nunique()))
    total = float(rows["dur_ns"].sum()) / steps
    return None if total <= 0 else min(1.0, max(0.0, 1.0 - float(cost) / total))


def _scaled(found: Priced, scale: float) -> Priced:
    return Priced(found.saving * scale, found.low * scale, found.high * scale)


def _saving(found: Priced, step_ns: int, steps: int) -> Saving:
    """No fix saves more than the step."""
    ns, low, high = (min(round(value), step_ns) for value in (found.saving, found.low, found.high))
    basis = f"upper bound: {plural(steps, 'profiled step')} replayed without it"
    return Saving(ns, ns / step_ns, "simulated", basis, low, high)


def _together(played: Simulation, fixes: Sequence[_Fix], scale: float, step_ns: int) -> Saving | None:
    if not fixes:
        return None
    whole = fixes[0].edit
    for fix in fixes[1:]:
        whole = whole.and_also(fix.edit)
    return _saving(_scaled(played.price(whole), scale), step_ns, len(played.errors))


def _rank(played: Simulation, fixes: list[_Fix], scale: float) -> dict[int, int]:
    """Sorts the fixes by what each adds to those before it, and says which of them another makes useless.

    A fix can add more once others are made (a GPU that no longer waits for its data is bound by its kernels), so all
    that are left are replayed again for each place, as long as the replays last.
    """
    left = sorted(fixes, key=lambda fix: -fix.priced.saving)
    for fix in left:
        fix.adds = fix.priced.saving
    ranked: list[_Fix] = []
    replays = 0
    while left:
        if ranked and replays + len(left) <= _MAX_REPLAYS:
            made = [fix.edit for fix in ranked]
            for fix in left:
                fix.adds = played.price(fix.edit, made).saving * scale
            replays += len(left)
            left.sort(key=lambda fix: -fix.adds)
        ranked.append(left.pop(0))
    fixes[:] = ranked
    causes: dict[int, int] = {}
    for number, fix in enumerate(ranked):
        if fix.adds > VANISHED * fix.priced.saving:
            continue
        for other in ranked[:number]:
            if other.what_if.edit in _NO_CAUSE or replays >= 2 * _MAX_REPLAYS or other.place in causes:
                continue
            replays += 1
            if played.price(fix.edit, [other.edit]).saving * scale <= VANISHED * fix.priced.saving:
                causes[fix.place] = other.place
                break
    return causes
