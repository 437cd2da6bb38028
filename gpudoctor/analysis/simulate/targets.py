"""From the ids in a finding's row to the edit of the graph that its fix makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpudoctor.analysis.simulate.edits import Edit, HostTime
from gpudoctor.analysis.simulate.events import NONE, Bools, Floats, Ints
from gpudoctor.analysis.simulate.graph import Graph
from gpudoctor.profile import Profile


def edit_of(
    profile: Profile, graph: Graph, kind: str, on: str, ids: Sequence[int], remains: float | None = None
) -> Edit | None:
    """The edit of some events.

    Args:
        profile: the tables that the ids are of.
        graph: the graph.
        kind: what a fix does to them: `drop` takes them away, `scale` shortens them, `merge` makes one of each run of
            them, `unblock` lets the host go on instead of waiting in them, `overlap` lets them run beside the rest,
            `launch` launches them at no cost to the host, `align` lets collectives begin when the last rank arrives.
        on: which table the ids are of: kernels, ops, runtime_calls, kernel_runs, loaders; `all` for every launch.
        ids: the ids.
        remains: for scale and merge: share of their durations that remains; 1 by default.

    Returns:
        The edit; None when none of the events is in the graph.
    """
    targets = _Targets(profile, graph)
    edit = Edit.nothing(graph)
    wanted = np.array(list(ids), np.int64)
    found = _FIND[on](targets, wanted)
    targets.launched_by(found)
    if not found.any():
        return None
    share = 1.0 if remains is None else min(max(remains, 0.0), 1.0)
    _APPLY[kind](targets, edit, found, share)
    return edit


class _Found:
    """Rows of activities and calls, and host time."""

    def __init__(self, activities: Bools, calls: Bools, host: HostTime | None) -> None:
        self.activities, self.calls, self.host = activities, calls, host

    def any(self) -> bool:
        """Whether there is something to edit."""
        return bool(self.activities.any() or self.calls.any() or (self.host is not None and len(self.host.start)))


class _Targets:
    def __init__(self, profile: Profile, graph: Graph) -> None:
        self.profile, self.graph = profile, graph
        self.activities, self.calls = graph.events.activities, graph.events.calls

    def _none(self) -> _Found:
        return _Found(np.zeros(len(self.activities), bool), np.zeros(len(self.calls), bool), None)

    def kernels(self, ids: Ints) -> _Found:
        """Activities, with the host time of operators that launched nothing else."""
        found = self._none()
        found.activities = np.isin(self.activities.id, ids)
        found.host = self._operators_of(found.activities)
        return found

    def ops(self, ids: Ints) -> _Found:
        """Operators, with all calls and activities inside them."""
        found = self._none()
        ops = self.profile.table("ops")
        rows = ops[np.isin(ops["op"].to_numpy(np.int64, na_value=NONE), ids)]
        start = rows["start_ns"].to_numpy(np.float64, na_value=0.0)
        end = start + rows["dur_ns"].to_numpy(np.float64, na_value=0.0)
        found.host = HostTime(rows["thread"].to_numpy(np.int64, na_value=NONE), start, end)
        found.calls = _inside(self.calls.thread, self.calls.start, found.host)
        return found

    def runtime_calls(self, ids: Ints) -> _Found:
        """Calls, with what they launched."""
        found = self._none()
        found.calls = np.isin(self.calls.id, ids)
        rows = np.flatnonzero(found.calls)
        found.host = HostTime(self.calls.thread[rows], self.calls.start[rows], self.calls.end[rows])
        return found

    def kernel_runs(self, ids: Ints) -> _Found:
        """All kernels of some runs."""
        runs = self.profile.table("kernel_runs")
        runs = runs[np.isin(runs["run"].to_numpy(np.int64, na_value=NONE), ids)]
        found = self._none()
        for device, stream, start, dur in zip(
            runs["device"], runs["stream"], runs["start_ns"], runs["dur_ns"], strict=True
        ):
            inside = (self.activities.start >= start) & (self.activities.end <= start + dur)
            found.activities |= inside & (self.activities.device == device) & (self.activities.stream == stream)
        found.host = self._operators_of(found.activities)
        return found

    def loaders(self, ids: Ints) -> _Found:
        """The loop's waits for batches of some loaders."""
        batches = self.profile.table("batches")
        rows = batches[np.isin(batches["loader"].to_numpy(np.int64, na_value=NONE), ids)]
        rows = rows[rows["start_ns"].notna() & rows["wait_ns"].notna()]
        start = rows["start_ns"].to_numpy(np.float64)
        end = start + rows["wait_ns"].to_numpy(np.float64)
        known = np.zeros(len(start), bool)
        for begin, until in zip(self.graph.events.step_start, self.graph.events.step_end, strict=True):
            known |= (start < until) & (end > begin)
        main = np.full(int(known.sum()), self.graph.events.main)
        found = self._none()
        found.host = HostTime(main, start[known], end[known])
        return found

    def all(self, ids: Ints) -> _Found:
        """Every launch, with the host time of the operators around."""
        found = self._none()
        found.activities = self.activities.kind == 0
        found.host = self._operators_of(found.activities, alone=False)
        return found

    def launched_by(self, found: _Found) -> None:
        """Adds the activities that found calls launched."""
        call = self.activities.call
        if len(self.calls):
            found.activities = found.activities | ((call != NONE) & found.calls[np.maximum(call, 0)])

    def _operators_of(self, activities: Bools, alone: bool = True) -> HostTime | None:
        """Host time of the operators that launched some activities (`alone`: and no others)."""
        call = self.activities.call
        launched = call != NONE
        if not len(self.calls) or not (activities & launched).any():
            return None
        op = np.where(launched, self.calls.op[np.maximum(call, 0)], NONE)
        mine = np.unique(op[activities & launched])
        if alone:
            mine = np.setdiff1d(mine, np.unique(op[launched & ~activities]))
        ops = self.profile.table("ops")
        rows = ops[np.isin(ops["op"].to_numpy(np.int64, na_value=NONE), mine[mine != NONE])]
        if rows.empty:
            return None
        start = rows["start_ns"].to_numpy(np.float64, na_value=0.0)
        end = start + rows["dur_ns"].to_numpy(np.float64, na_value=0.0)
        return HostTime(rows["thread"].to_numpy(np.int64, na_value=NONE), start, end)


_FIND: dict[str, Callable[[_Targets, Ints], _Found]] = {
    "kernels": _Targets.kernels,
    "ops": _Targets.ops,
    "runtime_calls": _Targets.runtime_calls,
    "kernel_runs": _Targets.kernel_runs,
    "loaders": _Targets.loaders,
    "all": _Targets.all,
}


def _drop(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    edit.freed |= found.calls
    edit.drop(targets.graph, np.flatnonzero(found.activities))
    if found.host is not None:
        edit.host.append(found.host)
        edit.freed |= _inside(targets.calls.thread, targets.calls.start, found.host)


def _scale(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    edit.scale[found.activities] = remains
    if found.host is not None and not found.activities.any():  # on a CPU the operator is the work
        edit.host.append(HostTime(found.host.thread, found.host.start, found.host.end, 1.0 - remains))


def _merge(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    """Of each run of activities that were launched one after the other the first stays, with what remains of all."""
    activities = targets.activities
    launched = np.flatnonzero((activities.call != NONE) & (activities.node == 0))
    order = launched[np.lexsort((targets.calls.start[activities.call[launched]], activities.lane[launched]))]
    mine = found.activities[order]
    lane = activities.lane[order]
    step = np.searchsorted(targets.graph.events.step_start, activities.start[order], side="right")
    if not len(order):
        return
    begins = mine & np.concatenate(([True], ~mine[:-1] | (lane[1:] != lane[:-1]) | (step[1:] != step[:-1])))
    group = np.cumsum(begins)
    length = activities.end[order] - activities.start[order]
    total = np.bincount(group[mine], weights=length[mine], minlength=int(group[-1]) + 1)
    first = np.flatnonzero(begins)
    own = np.maximum(length[first], 1.0)
    edit.scale[order[first]] = remains * total[group[first]] / own
    rest = order[mine & ~begins]
    edit.drop(targets.graph, rest)
    gone = np.zeros(len(activities), bool)
    gone[rest] = True
    if (host := targets._operators_of(gone)) is not None:
        edit.host.append(host)


def _unblock(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    call = targets.activities.call[found.activities]
    edit.freed |= found.calls
    edit.freed[call[call != NONE]] = True


def _overlap(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    """A copy that runs beside the rest is not waited for by its own operator either (`non_blocking=True`)."""
    rows = np.flatnonzero(found.activities)
    edit.overlap(targets.graph, rows)
    calls, activities = targets.calls, targets.activities
    copied = activities.call[rows[activities.kind[rows] == 1]]
    ops = np.unique(calls.op[copied[copied != NONE]])
    syncs = np.array(["Synchronize" in text for text in calls.texts] or [False], bool)
    waits = np.flatnonzero(np.isin(calls.op, ops[ops != NONE]) & syncs[calls.name]) if len(calls) else rows[:0]
    edit.freed[waits] = True
    edit.host.append(HostTime(calls.thread[waits], calls.start[waits], calls.end[waits]))


def _launch(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    """One launch for all: neither the calls nor the operators around them take the host time."""
    call = targets.activities.call[found.activities]
    rows = np.unique(call[call != NONE])
    calls = targets.calls
    edit.host.append(HostTime(calls.thread[rows], calls.start[rows], calls.end[rows]))
    if found.host is not None:
        edit.host.append(found.host)


def _align(targets: _Targets, edit: Edit, found: _Found, remains: float) -> None:
    """Collectives of one size take what the shortest takes: the rest of their time they wait for other ranks."""
    rows = np.flatnonzero(found.activities & targets.activities.communication)
    length = targets.activities.end - targets.activities.start
    kinds = _sizes(targets.profile, targets.activities.id[rows])
    for size in np.unique(kinds).tolist():
        same = rows[kinds == size]
        edit.scale[same] = float(length[same].min()) / np.maximum(length[same], 1.0)


def _sizes(profile: Profile, ids: Ints) -> Ints:
    """Number of the kind and size of each collective."""
    table = profile.table("collectives")
    keys = list(zip(table["kernel"].tolist(), table["name"].astype(str), table["bytes"].fillna(-1), strict=True))
    known = {kernel: (name, size) for kernel, name, size in keys}
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(known.get(key, key), len(numbers)) for key in ids.tolist()], np.int64)


_APPLY: dict[str, Callable[[_Targets, Edit, _Found, float], None]] = {
    "drop": _drop,
    "scale": _scale,
    "merge": _merge,
    "unblock": _unblock,
    "overlap": _overlap,
    "launch": _launch,
    "align": _align,
}


def _inside(thread: Ints, start: Floats, host: HostTime) -> Bools:
    """Which events began inside a stretch of host time of their thread."""
    made = np.zeros(len(start), bool)
    for group in np.unique(host.thread).tolist():
        mine = host.thread == group
        order = np.argsort(host.start[mine], kind="stable")
        begins, reach = host.start[mine][order], np.maximum.accumulate(host.end[mine][order])
        rows = np.flatnonzero(thread == group)
        at = np.searchsorted(begins, start[rows], side="right") - 1
        made[rows] = (at >= 0) & (start[rows] < reach[np.maximum(at, 0)])
    return made
