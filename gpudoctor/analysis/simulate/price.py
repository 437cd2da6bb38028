"""What an edit saves: the profiled steps replayed without the profiler's own cost, with the edit and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudoctor.analysis.simulate.edges import HAND, PROGRAM
from gpudoctor.analysis.simulate.edits import Edit, weights
from gpudoctor.analysis.simulate.events import Bools, Events, Floats, Ints, read
from gpudoctor.analysis.simulate.graph import Graph, build
from gpudoctor.analysis.simulate.path import opaque_share
from gpudoctor.analysis.simulate.points import STEP_END
from gpudoctor.analysis.simulate.replay import Player, ends, step_times
from gpudoctor.profile import Profile
from gpudoctor.units import format_share

MAX_ERROR = 0.02
"""A step that the unchanged replay misses by more is not understood well enough to be priced: on public
traces of training the worst step is off by 0.3 %."""

MAX_OPAQUE = 0.10
"""Share of unexplained waits on the critical path beyond which nothing is priced: they would not move with an edit."""

PROFILER_NS = {"light": 3_000.0, "detail": 8_000.0}
"""What the profiler can have added to each operator of a trace that others recorded, without and with stacks or shapes.

Under torch 2 on a current core it is 1.3 and 3.4 µs (a step of 7.5 ms took 46 % and 113 % longer); older cores and
releases take twice that and more. It only widens ranges: such a trace has no unprofiled steps that would tell.
"""

_MAX_PROFILER = 0.8
"""At most this share of a stretch of host time is the profiler's."""

_ROUNDS = 6
_FEW_STEPS = 3
_ON_HOST = 0.8
"""Share of the saving by which the host's steps must get shorter for them to show it."""


@dataclass(frozen=True, slots=True)
class Priced:
    """What an edit saves, in nanoseconds a step of an unprofiled run.

    Attributes:
        saving: the replay's answer.
        low: least over what had to be guessed.
        high: most.
    """

    saving: float
    low: float
    high: float


class Simulation:
    """The profiled steps of a run, to be replayed with edits.

    Attributes:
        graph: their dependency graph.
        times: time of each node, replayed with each event's own latencies, ns.
        measured: time of each step as recorded, ns.
        constant: the same replayed with the trace's constants.
        anchored: the same with each event's own latencies.
        opaque: share of unexplained waits on the critical path.
    """

    def __init__(self, profile: Profile, events: Events) -> None:
        self.graph: Graph = build(events)
        self.player = Player(self.graph)
        self.times = recorded = self.player.anchored()
        self.measured = events.step_end - events.step_start
        self.anchored = step_times(self.graph, recorded)
        constant = self.player.constant()
        self.constant = step_times(self.graph, constant)
        self._end_errors = _end_errors(self.graph, constant)
        self.opaque = opaque_share(self.graph, recorded)
        self._detail = _observed(profile, events)
        self._bases = self._with_and_without_profiler(profile)
        self._ends = [ends(self.graph, self.player.times(base)) for base in self._bases]

    # -- trust ---------------------------------------------------------------------------------------------------

    @property
    def errors(self) -> Floats:
        """By step: |replayed / measured - 1| with the trace's constants."""
        return np.abs(self.constant / np.maximum(self.measured, 1.0) - 1.0)

    @property
    def worst_error(self) -> float:
        """The largest of them, and of the same for the time at which all work of a stretch of steps is done."""
        return float(max(self.errors.max(initial=0.0), self._end_errors.max(initial=0.0)))

    @property
    def refused(self) -> str | None:
        """Why nothing is priced; None when edits are."""
        if self.opaque > MAX_OPAQUE:
            return (
                f"nothing in the recording explains {format_share(self.opaque)} of the critical path (launches or "
                "waits are missing), so a replay could not say what a fix saves"
            )
        worst = self.worst_error
        if worst > MAX_ERROR:
            return f"the replay misses a recorded step by {format_share(worst)}, so it could not say what a fix saves"
        return None

    @property
    def step_ns(self) -> float:
        """Mean time of the detailed steps, replayed without the profiler's cost."""
        return float(step_times(self.graph, self.player.times(self._bases[0]))[self._detail].mean())

    # -- the profiler --------------------------------------------------------------------------------------------

    def _with_and_without_profiler(self, profile: Profile) -> list[Floats]:
        """Weights to price with: without the profiler's cost, as recorded, and without the edges that are guesses."""
        found = [self.graph.edges.anchored]
        step_ns = profile.facts.get("step_ns")
        load = _profiled_events(profile, self.graph)
        if "trace" in profile.facts:
            found.append(_lightened(self.graph, load, PROFILER_NS[_mode(profile)]))
        elif step_ns:
            least = float(profile.facts.get("event_cost_ns") or 0.0)
            cost = self._fitted(load, least, float(step_ns))
            if cost > 0.0:
                found.insert(0, _lightened(self.graph, load, cost))
        if self.graph.guessed.any():
            found.append(np.where(self.graph.guessed, -np.inf, found[0]))
        return found

    def _fitted(self, load: Floats, least: float, step_ns: float) -> float:
        """Cost of one profiled operator at which the replayed steps are as long as unprofiled ones, ns."""
        low, high = least, least

        def mean(cost: float) -> float:
            times = self.player.times(_lightened(self.graph, load, cost))
            return float(step_times(self.graph, times)[self._detail].mean())

        if not self._detail.any() or mean(least) <= step_ns:
            return least
        for _ in range(_ROUNDS):
            high = 2 * high + 1_000.0
            if mean(high) <= step_ns:
                break
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if mean(middle) > step_ns else (low, middle)
        return high

    # -- prices --------------------------------------------------------------------------------------------------

    def price(self, edit: Edit, given: Sequence[Edit] = (), doubt: float = 0.0) -> Priced:
        """What an edit saves once others are made.

        Args:
            edit: the edit.
            given: edits that are made already.
            doubt: share of the saving that the edit's own assumptions leave open.
        """
        before = given[0] if given else None
        for other in given[1:]:
            before = before.and_also(other) if before else other
        together = edit if before is None else before.and_also(edit)
        touched = self._steps_of(edit)
        count = max(1, int(touched.sum()))
        stretches = np.unique(self.graph.events.stretch(self.graph.events.step_start[touched]))
        found = []
        variants = list(zip(self._bases, self._ends, strict=True))
        for base, unedited in variants if not given else variants[:1]:
            since = unedited if before is None else self._ended(before, base)
            found.append(float((since - self._ended(together, base))[stretches].sum()) / count)
        best = max(0.0, found[0])
        low, high = max(0.0, min(found)), max(0.0, *found)
        if not given:
            low = min(low, self._usual(edit, touched, best * count))
        return Priced(best, low * (1 - doubt), high * (1 + doubt))

    def _usual(self, edit: Edit, steps: Bools, total: float) -> float:
        """What the edit saves in the median step: one step in which the host waited long makes no rule of it.

        Steps of a host that runs ahead do not show what the device saves; then nothing is said (infinity).
        """
        times = self.player.times(*weights(self.graph, edit, self._bases[0]))
        unedited = self.player.times(self._bases[0])
        at = np.flatnonzero(self.graph.points.kind == STEP_END)
        node = np.empty(len(self.measured), np.int64)
        node[self.graph.points.ref[at]] = self.graph.point_node[at]
        earlier = unedited[node] - times[node]
        stretch = self.graph.events.stretch(self.graph.events.step_start)
        first = np.concatenate(([True], stretch[1:] != stretch[:-1]))
        each = np.where(first, earlier, np.diff(earlier, prepend=0.0))[steps]
        if len(each) < _FEW_STEPS or each.sum() < _ON_HOST * total:
            return float("inf")
        return max(0.0, float(np.median(each)))

    def _ended(self, edit: Edit, base: Floats) -> Floats:
        return ends(self.graph, self.player.times(*weights(self.graph, edit, base)))

    def _steps_of(self, edit: Edit) -> Bools:
        """The steps that were watched as those are in which the edit changes something."""
        events = self.graph.events
        times = [
            events.activities.start[edit.dropped | edit.moved | (edit.scale != 1.0)],
            events.calls.start[edit.freed],
        ]
        times += [each.start for each in edit.host]
        at = np.concatenate(times)
        if not len(at):
            return np.ones(len(events.step), bool)
        step = np.clip(np.searchsorted(events.step_start, at, side="right") - 1, 0, None)
        kinds = np.unique(self._detail[step])
        return np.isin(self._detail, kinds)


def _end_errors(graph: Graph, times: Floats) -> Floats:
    """By stretch of profiled steps: how far its end is off, as a share; a host that runs ahead does not show it."""
    recorded = ends(graph, graph.time)
    length = np.maximum(recorded - graph.events.stretch_start, 1.0)
    return np.abs((ends(graph, times) - recorded) / length)


def simulation(profile: Profile) -> Simulation | None:
    """The simulation of a run; None when no step of it was profiled."""
    if not profile.measured("ops") and not profile.measured("kernels"):
        return None
    events = read(profile)
    return None if events is None else Simulation(profile, events)


def _mode(profile: Profile) -> str:
    """How a trace was recorded."""
    return "detail" if profile.table("steps")["observation"].eq("detail").fillna(False).any() else "light"


def _observed(profile: Profile, events: Events) -> Bools:
    """Which of the profiled steps were watched in detail; all where none was."""
    steps = profile.table("steps")
    detailed = set(steps.loc[steps["observation"].eq("detail").fillna(False), "step"])
    found = np.array([number in detailed for number in events.step.tolist()], bool)
    return found if found.any() else np.ones(len(found), bool)


def _profiled_events(profile: Profile, graph: Graph) -> Floats:
    """By edge of host time: operators that began in it."""
    ops, points, edges = profile.table("ops"), graph.points, graph.edges
    load = np.zeros(len(edges))
    begun = ops["start_ns"].to_numpy(np.float64, na_value=0.0)
    thread = ops["thread"].to_numpy(np.int64, na_value=-1)
    rows = np.flatnonzero(np.isin(edges.kind, (PROGRAM, HAND)))
    point = edges.owner[rows]
    previous = np.where(edges.kind[rows] == HAND, points.hand[point], point - 1)
    start, end = points.time[np.maximum(previous, 0)], points.time[point]
    part = edges.host[rows] / np.maximum(end - start, 1.0)
    for group in np.unique(points.thread).tolist():
        times = np.sort(begun[thread == group])
        mine = points.thread[point] == group
        count = np.searchsorted(times, end[mine]) - np.searchsorted(times, start[mine])
        load[rows[mine]] = np.maximum(count, 0) * np.minimum(part[mine], 1.0)
    return load


def _lightened(graph: Graph, load: Floats, cost: float) -> Floats:
    """Weights without the profiler's cost of each operator."""
    return graph.edges.anchored - np.minimum(load * cost, _MAX_PROFILER * graph.edges.host)


def rows_of(ids: Ints, of: Ints) -> Ints:
    """Rows of ids among others; ids that are not there are left out."""
    order = np.argsort(of, kind="stable")
    at = np.clip(np.searchsorted(of[order], ids), 0, max(0, len(of) - 1))
    return order[at[of[order][at] == ids]] if len(of) else np.empty(0, np.int64)
