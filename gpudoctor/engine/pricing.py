"""What each finding's fix saves, by replaying the profiled steps with it; which fixes add to which, and which do not.

A finding's saving is no sum of durations: a copy that hides behind computing costs nothing, and two fixes of the same
wait save it once. So the fixes are replayed one by one, then on top of each other in the order of what they add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpudoctor.analysis.simulate.edits import Edit
from gpudoctor.analysis.simulate.price import Priced, Simulation, simulation
from gpudoctor.analysis.simulate.targets import edit_of
from gpudoctor.diagnosis import Finding, Replay, Saving
from gpudoctor.engine.edited import events_of, remains_of
from gpudoctor.engine.rule import Rule, WhatIf
from gpudoctor.profile import Profile
from gpudoctor.units import format_ns, plural

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


@dataclass(slots=True)
class _Fix:
    """One finding's fix: its place among the findings, its edit, what that saves alone and what it adds to others."""

    place: int
    edit: Edit
    what_if: WhatIf
    alone: Priced
    adds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """The fixes on top of each other.

    Attributes:
        adds: by place of the finding: what its fix adds to those ranked above it, ns.
        causes: place of a finding → place of the one whose fix leaves it nothing to save.
        together: what all fixes save at once; None without any.
    """

    adds: Mapping[int, int]
    causes: Mapping[int, int]
    together: Saving | None


USUAL_SHARE = 0.67
"""Profiled over unprofiled step below which the profiled ones were of another kind: a profiler makes a step longer, so
that shorter ones had their batches ready, say, while the others wait."""


def _unusual(played: Simulation, step_ns: int | None) -> str | None:
    """Why steps that were replayed well say nothing of the unprofiled ones."""
    if not step_ns or played.step_ns >= USUAL_SHARE * step_ns:
        return None
    took, usual = format_ns(played.step_ns), format_ns(step_ns)
    return f"the profiled steps took {took}, the unprofiled ones {usual}: they were not the usual ones"


class Pricing:
    """The findings with what their fixes save.

    Attributes:
        made: the findings with the savings that a replay gives, without those that cost nothing; in the given order.
        replay: how far the replay is to be trusted; None without a graph.
    """

    def __init__(self, profile: Profile, made: Sequence[Made], step_ns: int | None, replayed: bool = True) -> None:
        """Replays what can be replayed.

        Args:
            profile: the tables.
            made: findings with the rows they were made of.
            step_ns: time of a step that savings are shares of, ns.
            replayed: whether to; else the findings stay as they are.
        """
        self.made: list[Made] = list(made)
        self.replay: Replay | None = None
        self._fixes: list[_Fix] = []
        self._played = simulation(profile) if replayed else None
        if self._played is None:
            return
        errors = self._played.errors
        self.replay = Replay(
            steps=len(errors),
            error=float(sorted(errors)[len(errors) // 2]),
            worst_error=self._played.worst_error,
            opaque_share=self._played.opaque,
            refused=self._played.refused or _unusual(self._played, step_ns),
        )
        if self.replay.refused is None and step_ns:
            self._step_ns = step_ns
            self._scale = min(1.0, step_ns / max(1.0, self._played.step_ns))
            self._price_each(profile, self._played)

    def _price_each(self, profile: Profile, played: Simulation) -> None:
        made, self.made = self.made, []
        for each in made:
            edit = _edit(profile, played, each)
            if edit is None or each.rule.what_if is None or each.row.get("mean_step_ns") is not None:
                self.made.append(each)
                continue
            found = self._scaled(played.price(edit, doubt=each.rule.what_if.doubt))
            if len(played.graph.events.activities) and found.high < MIN_SHARE * self._step_ns:
                continue
            self._fixes.append(_Fix(len(self.made), edit, each.rule.what_if, found))
            saving = self._saving(found, each.finding.saving)
            self.made.append(replace(each, finding=replace(each.finding, saving=saving)))

    def rank(self, places: Collection[int]) -> Ranking:
        """Puts the fixes of some findings on top of each other, the one that adds most first.

        Args:
            places: places in `made` of the findings that count: neither accepted nor explained by another.
        """
        fixes = [fix for fix in self._fixes if fix.place in places]
        if self._played is None or not fixes:
            return Ranking({}, {}, None)
        ranked, replays = self._greedy(self._played, fixes)
        causes = self._useless(self._played, ranked, replays)
        whole = ranked[0].edit
        for fix in ranked[1:]:
            whole = whole.and_also(fix.edit)
        total = sum(fix.adds for fix in ranked)
        doubt = sum(fix.adds * fix.what_if.doubt for fix in ranked) / total if total > 0 else 0.0
        together = self._saving(self._scaled(self._played.price(whole, doubt=doubt)))
        models = [saving for fix in ranked if (saving := self.made[fix.place].finding.saving) and not saving.is_bound]
        if models:
            together = replace(together, basis=f"model: in part; {together.basis.removeprefix('upper bound: ')}")
        adds = {fix.place: min(round(fix.adds), self._step_ns) for fix in ranked}
        return Ranking(adds, causes, together)

    def _greedy(self, played: Simulation, fixes: Sequence[_Fix]) -> tuple[list[_Fix], int]:
        """The fixes by what each adds to those before it, and how many replays it took.

        A fix can add more once others are made (a GPU that no longer waits for its data is bound by its kernels), so
        all that are left are replayed again for each place, as long as the replays last.
        """
        left = sorted(fixes, key=lambda fix: -fix.alone.saving)
        for fix in left:
            fix.adds = fix.alone.saving
        ranked: list[_Fix] = []
        replays = 0
        while left:
            if ranked and replays + len(left) <= _MAX_REPLAYS:
                made = [fix.edit for fix in ranked]
                for fix in left:
                    fix.adds = played.price(fix.edit, made).saving * self._scale
                replays += len(left)
                left.sort(key=lambda fix: -fix.adds)
            ranked.append(left.pop(0))
        return ranked, replays

    def _useless(self, played: Simulation, ranked: Sequence[_Fix], replays: int) -> dict[int, int]:
        """Findings whose fix adds nothing, with the one above them that alone makes it so."""
        causes: dict[int, int] = {}
        for number, fix in enumerate(ranked):
            if fix.adds > VANISHED * fix.alone.saving:
                continue
            for other in ranked[:number]:
                if other.what_if.edit in _NO_CAUSE or replays >= 2 * _MAX_REPLAYS or other.place in causes:
                    continue
                replays += 1
                left = played.price(fix.edit, [other.edit]).saving * self._scale
                if left <= VANISHED * fix.alone.saving:
                    causes[fix.place] = other.place
                    break
        return causes

    def _scaled(self, found: Priced) -> Priced:
        """In the time of an unprofiled step, where the replay without the profiler's cost is longer still."""
        return Priced(found.saving * self._scale, found.low * self._scale, found.high * self._scale)

    def _saving(self, found: Priced, estimated: Saving | None = None) -> Saving:
        """What a replay found; no fix saves more than the step, and what a model gave to replay stays a model's."""
        ns, low, high = (min(round(value), self._step_ns) for value in (found.saving, found.low, found.high))
        steps = self.replay.steps if self.replay else 0
        basis = f"upper bound: {plural(steps, 'profiled step')} replayed without it"
        if estimated is not None and not estimated.is_bound:
            basis = f"{estimated.basis}; {plural(steps, 'profiled step')} replayed with that"
        return Saving(ns, ns / self._step_ns, "simulated", basis, low, high)


def _edit(profile: Profile, played: Simulation, made: Made) -> Edit | None:
    what_if, row, saving = made.rule.what_if, made.row, made.finding.saving
    ids = events_of(row, made.rule.id)
    if what_if is None or (not ids and what_if.events != "all"):
        return None
    if saving is None or not saving.of_time:  # a rule that gives no price of its own says that the recording has none
        return None
    remedy = made.finding.remedy
    kind = what_if.edit if remedy is None else what_if.remedies.get(remedy.name, what_if.edit)
    remains = remains_of(row, made.rule.id)
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
