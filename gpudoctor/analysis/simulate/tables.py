"""The tables `replayed_steps` and `critical_path` of a simulation."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from gpudoctor import profile as schema
from gpudoctor.analysis.simulate import edges as g
from gpudoctor.analysis.simulate.events import LOADER, NONE, Ints
from gpudoctor.analysis.simulate.path import edges_to, last_nodes, opaque_of_steps
from gpudoctor.analysis.simulate.points import CALL_END, CALL_START
from gpudoctor.analysis.simulate.price import Simulation
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd


def replayed_steps(played: Simulation) -> pd.DataFrame:
    """The table `replayed_steps`."""
    events = played.graph.events
    opaque = opaque_of_steps(played.graph, played.times)
    rows = zip(events.step, played.measured, played.constant, played.anchored, opaque, strict=True)
    return schema.frame(
        "replayed_steps",
        [
            {
                "step": int(step),
                "measured_ns": round(measured),
                "replayed_ns": round(constant),
                "anchored_ns": round(anchored),
                "opaque_ns": round(unexplained),
            }
            for step, measured, constant, anchored, unexplained in rows
        ],
    )


def critical_path(profile: Profile, played: Simulation) -> pd.DataFrame:
    """The table `critical_path`: the part that lies in the median step of what the end of all work hangs on.

    A host that runs ahead ends its steps early; what such a step hangs on is what the device still has to do.
    """
    events = played.graph.events
    at = int(np.argsort(played.measured, kind="stable")[(len(played.measured) - 1) // 2])
    start, end = float(events.step_start[at]), float(events.step_end[at])
    stretches = _Stretches(profile, played, int(events.step[at]))
    last = last_nodes(played.graph, played.times)[int(events.stretch(events.step_start[at : at + 1])[0])]
    path = edges_to(played.graph, played.times, played.graph.edges.anchored, int(last))
    for edge in path.tolist():
        stretches.add(edge, start, end)
    return schema.frame("critical_path", stretches.rows)


_DEVICE = {g.RUN: "device", g.LAUNCH: "latency", g.STREAM: "latency", g.CROSS: "latency", g.ROOM: "wait"}


class _Stretches:
    """Rows of the path, in the order of time, that fill the step without gaps."""

    def __init__(self, profile: Profile, played: Simulation, step: int) -> None:
        self.played, self.step = played, step
        self.rows: list[dict[str, Any]] = []
        self._until = -np.inf
        self._kernels = _Lookup(profile, "kernels", "kernel", ("kernel_class", "file", "line"))
        self._calls = _Lookup(profile, "runtime_calls", "call", ("file", "line", "op"))
        self._operators = _Operators(profile)

    def add(self, edge: int, start: float, end: float) -> None:
        """Adds the stretch of an edge, as far as it lies in the step."""
        graph = self.played.graph
        since = max(float(graph.time[graph.edges.source[edge]]), start, self._until)
        until = min(float(graph.time[graph.edges.target[edge]]), end)
        if until <= since:
            return
        self._until = until
        kind = int(graph.edges.kind[edge])
        owner = int(graph.edges.owner[edge])
        if kind in _DEVICE:
            self._device(_DEVICE[kind], owner, since, until)
        elif kind in (g.WAIT, g.QUEUE, g.FEED):
            self._host("wait", owner, since, until)
        elif kind == g.ORIGIN:
            self._row("wait", since, until)
        else:
            self._host("host", owner, since, until)

    def _row(self, kind: str, since: float, until: float, **more: Any) -> None:
        begin = round(since)
        row = {"position": len(self.rows), "step": self.step, "kind": kind, "start_ns": begin}
        self.rows.append(row | {"dur_ns": round(until) - begin} | more)

    def _device(self, kind: str, row: int, since: float, until: float) -> None:
        activities = self.played.graph.events.activities
        known = self._kernels.get(int(activities.id[row]))
        self._row(
            kind, since, until, name=activities.names[row], device=int(activities.device[row]),
            stream=int(activities.stream[row]), kernel=int(activities.id[row]), **known,
        )  # fmt: skip

    def _host(self, kind: str, point: int, since: float, until: float) -> None:
        """A stretch that ends at a host point: inside a call, inside operators, or Python between them."""
        made, calls = self.played.graph.points, self.played.graph.events.calls
        thread = int(made.thread[point])
        if made.kind[point] == CALL_END or kind == "wait":
            call = int(made.ref[point]) if made.kind[point] in (CALL_START, CALL_END) else NONE
            if call != NONE:
                known = self._calls.get(int(calls.id[call]))
                name = calls.texts[calls.name[call]]
                self._row("wait" if kind == "wait" else "call", since, until, name=name, thread=thread,
                          call=int(calls.id[call]), **known)  # fmt: skip
                return
        for begin, stop, known in self._operators.pieces(thread, since, until):
            self._row(kind, begin, stop, thread=thread, **known)


class _Lookup:
    """Some columns of a table's row by its id."""

    def __init__(self, profile: Profile, table: str, key: str, names: tuple[str, ...]) -> None:
        rows = profile.table(table)
        ids = rows[key].to_numpy(np.int64, na_value=NONE)
        self._columns = _columns(rows, names)
        self._order: Ints = np.argsort(ids, kind="stable")
        self._ids: Ints = ids[self._order]

    def get(self, identity: int) -> dict[str, Any]:
        at = int(np.searchsorted(self._ids, identity))
        if at >= len(self._ids) or self._ids[at] != identity:
            return {}
        row = int(self._order[at])
        return {name: values[row] for name, values in self._columns.items()}


class _Operators:
    """The outermost operators of each thread and its waits for batches, to cut a stretch of host time by."""

    def __init__(self, profile: Profile) -> None:
        ops = profile.table("ops")
        names = [str(name) for name in ops["name"].astype(object)]
        ops = ops[np.array(["::" in name or name.startswith(LOADER) for name in names], bool)]
        self._columns = _columns(ops, ("name", "op", "file", "line"))
        self._columns["name"] = [
            "DataLoader" if str(name).startswith(LOADER) else name for name in self._columns["name"]
        ]
        start = ops["start_ns"].to_numpy(np.int64, na_value=0)
        end = start + ops["dur_ns"].to_numpy(np.int64, na_value=0)
        thread = ops["thread"].to_numpy(np.int64, na_value=NONE)
        self._threads: dict[int, tuple[list[int], list[int], list[int]]] = {}
        for group in np.unique(thread).tolist():
            rows = np.flatnonzero(thread == group)
            rows = rows[np.lexsort((-end[rows], start[rows]))]
            reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[rows])[:-1]))
            rows = rows[start[rows] >= reach]
            self._threads[group] = (start[rows].tolist(), end[rows].tolist(), rows.tolist())

    def pieces(self, thread: int, since: float, until: float) -> list[tuple[float, float, dict[str, Any]]]:
        """The parts of a stretch inside operators, with the operator, and those between them."""
        starts, ends, rows = self._threads.get(thread, ([], [], []))
        found: list[tuple[float, float, dict[str, Any]]] = []
        at = max(0, bisect_right(starts, since) - 1)
        now = since
        while now < until:
            while at < len(starts) and ends[at] <= now:
                at += 1
            if at >= len(starts) or starts[at] >= until:
                found.append((now, until, {"name": None}))
                break
            if starts[at] > now:
                found.append((now, float(starts[at]), {"name": None}))
                now = float(starts[at])
            stop = min(until, float(ends[at]))
            found.append((now, stop, self._of(rows[at])))
            now = stop
        return found

    def _of(self, row: int) -> dict[str, Any]:
        return {name: values[row] for name, values in self._columns.items()}


def _columns(table: pd.DataFrame, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Columns as lists, None for null."""
    made = {}
    for name in names:
        cells = table[name].astype(object)
        made[name] = cells.where(cells.notna(), None).tolist()
    return made
