"""The events of a trace as columns: one set of numpy arrays for each kind of event, texts coded by dictionary.

A column holds `numbers.MISSING` (integers), -1 (codes) or NaN (floats) where an event does not say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.ingest.kineto import numbers
from gpudoctor.ingest.kineto.numbers import MISSING, integer
from gpudoctor.ingest.kineto.records import Args, Event

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Column = NDArray[Any]

NO_CODE = -1

GROUPS: dict[str, str] = {
    "cpu_op": "ops",
    "operator": "ops",
    "user_annotation": "ops",
    "hpu_op": "ops",
    "python_function": "python",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "driver": "runtime",
    "hip_runtime": "runtime",
    "hip_driver": "runtime",
    "mtia_runtime": "runtime",
    "xpu_runtime": "runtime",
    "xpu_driver": "runtime",
    "glow_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "runtime",
    "kernel": "device",
    "concurrent_kernel": "device",
    "gpu_memcpy": "device",
    "memcpy": "device",
    "gpu_memset": "device",
    "memset": "device",
    "mtia_ccp_events": "device",
    "mtia_workloadd": "device",
    "cuda_sync": "sync",
    "gpu_user_annotation": "device_ranges",
    "overhead": "overhead",
}
"""Kineto's categories (`ActivityType.cpp`; `Operator`, `Kernel`, `Memcpy`, `Memset`, `Runtime` before torch 1.11)."""

KINDS = {"memcpy": "memcpy", "gpu_memcpy": "memcpy", "memset": "memset", "gpu_memset": "memset"}
"""Kind of a device activity by category; everything else on a device is a kernel."""


class Dictionary(dict[Any, int]):
    """Codes of values in order of first appearance."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code

    def codes(self, values: Sequence[Any]) -> Codes:
        """Codes of all values."""
        try:
            return np.fromiter(map(self.__getitem__, values), np.int32, len(values))
        except TypeError:  # a list or object where a name should stand
            return np.fromiter((self[v if v.__hash__ else repr(v)] for v in values), np.int32, len(values))

    def texts(self, values: Sequence[Any]) -> Codes:
        """Codes of raw JSON texts; -1 for absent ones."""
        raw = list(map(bytes, values))
        made = self.codes(raw)
        absent = self.get(b"")
        return made if absent is None else np.where(made == absent, NO_CODE, made).astype(np.int32)


@dataclass(slots=True)
class Table:
    """Columns of equal length, by name."""

    columns: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def take(self, rows: NDArray[Any]) -> Table:
        """The rows that an index array or a mask picks."""
        return Table({name: column[rows] for name, column in self.columns.items()})

    def taken(self, rows: NDArray[Any]) -> Table:
        """As `take`, column by column and leaving nothing here: half the memory."""
        return Table({name: self.columns.pop(name)[rows] for name in list(self.columns)})


_INT_ARGS: dict[str, tuple[str, ...]] = {
    "ops": ("external", "sequence", "forward_thread"),
    "runtime": ("correlation",),
    "device": (
        "correlation",
        "external",
        "device",
        "stream",
        "bytes",
        "registers",
        "shared_memory",
        "graph",
        "graph_node",
    ),
    "sync": ("correlation", "external", "device", "stream", "waits_for_stream", "waits_for_record"),
    "device_ranges": ("external", "device", "stream"),
    "overhead": (),
}
_TEXT_ARGS: dict[str, tuple[str, ...]] = {
    "ops": ("dims", "types", "concrete", "call_stack"),
    "device": ("grid", "block", "kind"),
    "sync": ("sync_kind",),
}
_FLOAT_ARGS: dict[str, tuple[str, ...]] = {"device": ("occupancy", "bandwidth")}
_COLLECTIVE = (
    "collective",
    "dtype",
    "elements_in",
    "elements_out",
    "group_size",
    "group_name",
    "group_description",
    "group_ranks",
)
_NO_ARGS = Args()


def _codes_type(codes: Codes) -> np.dtype[Any]:
    """The smallest type that holds these codes: a column of a few different texts takes a byte a row."""
    return np.min_scalar_type(-int(codes.max(initial=1)) - 1)


MEMORY = ("address", "bytes_changed", "total_allocated", "total_reserved", "device_type", "device_id")


class Columns:
    """Collects events block by block.

    Attributes:
        names: dictionary of event names.
        categories: dictionary of categories as written.
        threads: dictionary of (pid, tid).
        texts: dictionary of raw JSON texts (shapes, dtypes, grids).
        rows: number of events by phase (`ph`).
        collectives: what a collective says of itself: of device activities by row, of operators by External id.
        thread_names: (pid, tid) → name, and (pid, None) → process name and labels, from metadata events.
    """

    def __init__(self) -> None:
        self.names, self.categories, self.threads, self.texts = Dictionary(), Dictionary(), Dictionary(), Dictionary()
        self.rows: dict[str, int] = defaultdict(int)
        self.collectives: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.no_time = 0
        self.no_duration = 0
        self._parts: dict[str, dict[str, list[Column]]] = defaultdict(lambda: defaultdict(list))
        self._lengths: dict[str, int] = defaultdict(int)
        self._halves: list[Event] = []

    def add(self, events: Iterable[Event]) -> None:
        """Takes a block's events in."""
        spans: dict[str | None, list[Event]] = defaultdict(list)
        others: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                spans[event.cat].append(event)
            else:
                others[event.ph].append(event)
        for phase, given in others.items():
            self._add_others(phase, given, spans)
        for category, given in spans.items():
            self.rows["X"] += len(given)
            self._add_spans(GROUPS.get((category or "").lower(), "other"), category or "", given)

    def _add_others(self, phase: str, events: list[Event], spans: dict[str | None, list[Event]]) -> None:
        self.rows[phase] += len(events)
        if phase in ("s", "f", "t"):
            links = [event for event in events if event.cat == "fwdbwd"]
            if links:
                columns = self._common(links, None)
                columns["id"] = numbers.integers([MISSING if e.id is None else e.id for e in links])
                columns["start"] = np.full(len(links), phase == "s")
                self._store("links", columns)
        elif phase in ("i", "I"):
            memory = [e for e in events if e.name == "[memory]" or (e.args and e.args.bytes_changed != MISSING)]
            if memory:
                columns = self._common(memory, None)
                arguments = [e.args or _NO_ARGS for e in memory]
                for name in MEMORY:
                    columns[name] = numbers.integers(list(map(attrgetter(name), arguments)))
                self._store("memory", columns)
        elif phase == "M":
            for event in events:
                self._name_thread(event)
        elif phase in ("B", "E"):
            self._halves += events
        elif phase == "":  # no phase: a duration says that it is a complete event
            for event in events:
                spans[event.cat].append(event)
            self.rows[phase] -= len(events)

    def _name_thread(self, event: Event) -> None:
        args = event.args or _NO_ARGS
        if event.name == "thread_name" and args.name is not None:
            self.thread_names[event.pid, event.tid] = str(args.name)
        elif event.name == "process_name" and args.name is not None:
            self.thread_names.setdefault((event.pid, None), str(args.name))
        elif event.name == "process_labels" and args.labels is not None:
            self.thread_names[event.pid, None] = str(args.labels)

    def _common(self, events: list[Event], durations: bool | None) -> dict[str, Column]:
        columns: dict[str, Column] = {"start_ns": numbers.nanoseconds([bytes(e.ts) for e in events])}
        if durations:
            columns["dur_ns"] = numbers.nanoseconds([bytes(e.dur) or b"?" for e in events])
        columns["name"] = self.names.codes([e.name or "" for e in events])
        columns["thread"] = self.threads.codes([(e.pid, e.tid) for e in events])
        return columns

    def _add_spans(self, group: str, category: str, events: list[Event]) -> None:
        columns = self._common(events, True)
        columns["category"] = np.full(len(events), self.categories[category], np.int32)
        arguments = [e.args or _NO_ARGS for e in events]
        for name in _INT_ARGS.get(group, ()):
            columns[name] = numbers.integers(list(map(attrgetter(name), arguments)))
        if "external" in columns:
            self._old_spelling(columns, arguments)
        for name in _FLOAT_ARGS.get(group, ()):
            columns[name] = numbers.floats(list(map(attrgetter(name), arguments)))
        for name in _TEXT_ARGS.get(group, ()):
            columns[name] = self.texts.texts(list(map(attrgetter(name), arguments)))
        if group == "ops":
            columns["backward"] = columns.pop("forward_thread") > 0
            old = [a.dims_old for a in arguments]
            columns["dims"] = np.where(columns["dims"] < 0, self.texts.texts(old), columns["dims"])
        if group == "device":
            kind = KINDS.get(category.lower(), "kernel")
            columns["activity"] = np.full(len(events), ("kernel", "memcpy", "memset").index(kind), np.int8)
        keep = self._valid(columns)
        if group in ("ops", "device"):
            self._add_collectives(group, arguments, keep)
        if not keep.all():
            columns = {name: column[keep] for name, column in columns.items()}
        self._store(group, columns)

    def _old_spelling(self, columns: dict[str, Column], arguments: list[Args]) -> None:
        if (columns["external"] == MISSING).any():
            old = numbers.integers([a.external_old for a in arguments])
            columns["external"] = np.where(columns["external"] == MISSING, old, columns["external"])

    def _valid(self, columns: dict[str, Column]) -> NDArray[np.bool_]:
        """Events with a time; one without a duration is counted and gets none."""
        timed: NDArray[np.bool_] = columns["start_ns"] != MISSING
        open_ended = (columns["dur_ns"] == MISSING) & timed
        self.no_time += int((~timed).sum())
        self.no_duration += int(open_ended.sum())
        whole: NDArray[np.bool_] = timed & ~open_ended
        return whole

    def _add_collectives(self, group: str, arguments: list[Args], keep: NDArray[np.bool_]) -> None:
        if all(a.collective is None for a in arguments):
            return
        rows = np.cumsum(keep) - 1 + self._lengths[group]
        keys = rows.tolist() if group == "device" else [integer(a.external) for a in arguments]
        for row, kept, a in zip(keys, keep.tolist(), arguments, strict=True):
            if kept and a.collective is not None:
                said = {name: getattr(a, name) for name in _COLLECTIVE}
                self.collectives[group][row] = {k: None if v == MISSING else v for k, v in said.items()}

    def _store(self, group: str, columns: dict[str, Column]) -> None:
        self._lengths[group] += len(columns["start_ns"])
        for name, column in columns.items():
            narrow = column.astype(_codes_type(column)) if column.dtype == np.int32 else column
            self._parts[group][name].append(narrow)

    # -- the whole -----------------------------------------------------------------------------------------------

    def finish(self) -> dict[str, Table]:
        """The tables by group; nothing can be added afterwards."""
        self.pair_halves()
        made: dict[str, Table] = {}
        for group in list(self._parts):
            parts = self._parts.pop(group)
            made[group] = Table({name: np.concatenate(parts.pop(name)) for name in list(parts)})
        return made

    def pair_halves(self) -> None:
        """Makes complete events of begin and end events (`ph` B and E), innermost first on each thread."""
        stacks: dict[Any, list[tuple[int, Event]]] = defaultdict(list)
        whole: dict[str | None, list[Event]] = defaultdict(list)
        timed = [(numbers.exact(bytes(event.ts)), event) for event in self._halves]
        self._halves = []
        for time, event in sorted(timed, key=lambda pair: pair[0]):
            stack = stacks[repr((event.pid, event.tid))]
            if time == MISSING:
                self.no_time += 1
            elif event.ph == "B":
                stack.append((time, event))
            elif stack:
                begun, first = stack.pop()
                first.dur = _microseconds(time - begun)
                whole[first.cat].append(first)
            else:
                self.no_duration += 1
        self.no_duration += sum(map(len, stacks.values()))
        for category, events in whole.items():
            self._add_spans(GROUPS.get((category or "").lower(), "other"), category or "", events)


def _microseconds(ns: int) -> Any:
    import msgspec

    return msgspec.Raw(f"{ns // 1000}.{ns % 1000:03d}".encode())
