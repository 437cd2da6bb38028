"""Fills the tables of a GPU's activities from a decoded trace: kernels, calls, collectives, memory, stream waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded, coded
from gpudoctor.hardware import Gpu
from gpudoctor.ingest import kernel_classes
from gpudoctor.ingest.collectives import collectives_of
from gpudoctor.ingest.kineto import Table, Trace
from gpudoctor.ingest.kineto.numbers import integer
from gpudoctor.ingest.ops import Columns, Ints, Ops, Window, windows_of

_KINDS = ("kernel", "memcpy", "memset")
_MEMCPY = _KINDS.index("memcpy")
_CALLS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("graph_launch", re.compile(r"GraphLaunch")),
    ("launch", re.compile(r"Launch")),
    ("event", re.compile(r"StreamWaitEvent|EventRecord|EventCreate|EventDestroy|EventQuery|EventElapsed")),
    ("sync", re.compile(r"Synchronize")),
    ("memcpy", re.compile(r"Memcpy")),
    ("memset", re.compile(r"Memset")),
    ("free", re.compile(r"Free|MemUnmap|MemRelease|MemAddressFree|HostUnregister")),
    ("allocate", re.compile(r"Malloc|HostAlloc|MemCreate|MemMap|MemAddressReserve|HostRegister|MallocFromPool")),
)
"""Kinds of runtime and driver calls by name (CUDA runtime and driver API, HIP)."""

_DIRECTIONS = (
    ("h2d", ("htod", "hosttodevice")),
    ("d2h", ("dtoh", "devicetohost")),
    ("p2p", ("ptop", "peer")),
    ("d2d", ("dtod", "devicetodevice")),
    ("h2h", ("htoh", "hosttohost")),
)


@dataclass(slots=True)
class Device:
    """Columns of the tables, each empty when the trace has none of it."""

    kernels: Columns
    runtime_calls: Columns
    collectives: Columns
    memory_events: Columns
    stream_waits: Columns


def build(trace: Trace, windows: Sequence[Window], offset_ns: int, ops: Ops, first: tuple[int, int] = (0, 0)) -> Device:
    """The device tables of one trace.

    Args:
        trace: the decoded trace.
        windows: the steps, in order, on the trace's clock.
        offset_ns: what to add to the trace's times.
        ops: its operators.
        first: ids of the first kernel and of the first runtime call.
    """
    calls = _runtime_calls(trace, windows, ops, first[1])
    kernels = _kernels(trace, windows, ops, calls, first[0])
    _mark_blocking(kernels, calls)
    collectives = collectives_of(trace, kernels)
    memory = _memory(trace, windows, ops)
    waits = _stream_waits(trace)
    for table in (kernels, calls, collectives, memory, waits):
        if table:
            table["start_ns"] = _ints(table["start_ns"]) + offset_ns
    return Device(kernels, calls, collectives, memory, waits)


def busiest(trace: Trace) -> int | None:
    """Index of the GPU that ran most activities."""
    table = trace.table("device")
    if not len(table):
        return None
    values, counts = np.unique(table["device"], return_counts=True)
    return int(values[counts.argmax()])


def specification(gpus: Mapping[int, Gpu], trace: Trace) -> str | None:
    """Name of the specification of the GPU that ran most activities.

    Args:
        gpus: those that are known, by index.
        trace: the decoded trace.
    """
    index = busiest(trace)
    return gpus[index].name if index is not None and index in gpus else None


def _ints(column: NDArray[Any] | Coded) -> Ints:
    assert isinstance(column, np.ndarray)
    return column


def _steps(start_ns: Ints, windows: Sequence[Window]) -> Ints:
    numbers = np.array([window.step for window in windows] or [0], np.int64)
    at = windows_of(start_ns, windows)
    return np.where(at >= 0, numbers[at], MISSING)


def _launch_steps(start_ns: Ints, windows: Sequence[Window], op: Ints, call: Ints, ops: Ops, calls: Columns) -> Ints:
    """Number of the step that launched each activity: that of its operator, else of its call."""
    if not calls and not (op != MISSING).any():
        return _steps(start_ns, windows)
    made = np.full(len(start_ns), MISSING, np.int64)
    if calls:
        known = call != MISSING
        made[known] = _ints(calls["step"])[call[known] - _ints(calls["call"])[0]]
    return np.where(op != MISSING, _ints(ops.of("step", op)), made)


def _in_time(table: Table) -> Table:
    return table.take(np.lexsort((-table["dur_ns"], table["start_ns"])))


# -- runtime calls ---------------------------------------------------------------------------------------------------


def _runtime_calls(trace: Trace, windows: Sequence[Window], ops: Ops, first: int) -> Columns:
    table = trace.table("runtime")
    if not len(table):
        return {}
    table = _in_time(table)
    start, dur = table["start_ns"], np.maximum(table["dur_ns"], 0)
    op = ops.around(table["thread"], start, start + dur)
    codes, rows = np.unique(table["name"], return_inverse=True)
    texts = trace.texts("name")
    kinds = [next((kind for kind, pattern in _CALLS if pattern.search(texts[code])), "other") for code in codes]
    return {
        "call": first + np.arange(len(table), dtype=np.int64),
        "name": Coded(table["name"], texts),
        "kind": Coded(rows.astype(np.int32), kinds),
        "start_ns": start,
        "dur_ns": dur,
        "thread": trace.thread_numbers()[table["thread"]],
        "correlation": np.where(table["correlation"] > 0, table["correlation"], MISSING),
        "op": op,
        "step": _steps(start, windows),
        "file": ops.of("file", op),
        "line": ops.of("line", op),
    }


# -- kernels ---------------------------------------------------------------------------------------------------------


def _kernels(trace: Trace, windows: Sequence[Window], ops: Ops, calls: Columns, first: int) -> Columns:
    table = trace.table("device")
    if not len(table):
        return {}
    table = _in_time(table)
    texts = trace.texts("name")
    start, dur, activity = table["start_ns"], table["dur_ns"], table["activity"]
    call = _launches(table["correlation"], calls)
    known = call != MISSING
    row = np.where(known, call - (_ints(calls["call"])[0] if calls else 0), 0)
    op = ops.by_external(table["external"])
    queue = np.full(len(table), MISSING, np.int64)
    graph = table["graph_node"] > 0
    if calls:
        op = np.where((op == MISSING) & known, _ints(calls["op"])[row], op)
        queue = np.where(known, start - _ints(calls["start_ns"])[row], MISSING)
        kind = calls["kind"]
        assert isinstance(kind, Coded)
        replays = np.array([text == "graph_launch" for text in kind.values], bool)
        graph |= known & replays[kind.codes[row]]
    copy = activity == _MEMCPY
    codes, rows = np.unique(table["name"], return_inverse=True)
    names = [texts[code] for code in codes]
    precision = [kernel_classes.precision(name) for name in names]
    device = _device_numbers(trace, table)
    return {
        "kernel": first + np.arange(len(table), dtype=np.int64),
        "name": Coded(table["name"], texts),
        "kind": Coded(activity.astype(np.int32), _KINDS),
        "kernel_class": _classes(names, rows, activity, ops, op),
        "precision": coded(np.where(activity > 0, -1, rows), precision),
        "start_ns": start,
        "dur_ns": dur,
        "device": device,
        "stream": table["stream"],
        "correlation": table["correlation"],
        "call": call,
        "queue_ns": queue,
        "graph": graph,
        "op": op,
        "step": _steps(start, windows),
        "launch_step": _launch_steps(start, windows, op, call, ops, calls),
        "bytes": table["bytes"],
        "direction": _of_copies(names, rows, copy, _direction),
        "pageable": np.where(copy, np.array([_pageable(name) for name in names], np.int8)[rows], np.int8(-1)),
        "grid_blocks": _products(trace, table["grid"]),
        "block_threads": _products(trace, table["block"]),
        "multiprocessors": _multiprocessors(trace, device),
        "registers": table["registers"],
        "shared_memory_bytes": table["shared_memory"],
        "file": ops.of("file", op),
        "line": ops.of("line", op),
    }


def _device_numbers(trace: Trace, table: Table) -> Ints:
    """GPU index: what the event says, else the process that Kineto shows a device as."""
    pids = np.array([integer(pid) for pid, _ in trace.columns.threads] or [MISSING], np.int64)
    return np.where(table["device"] == MISSING, pids[table["thread"]], table["device"])


def _multiprocessors(trace: Trace, device: Ints) -> Ints:
    """How many each activity's device has, as Kineto's `deviceProperties` says."""
    properties = trace.metadata.get("deviceProperties")
    items = [item for item in properties if isinstance(item, dict)] if isinstance(properties, list) else []
    known = {integer(item.get("id")): integer(item.get("numSms")) for item in items}
    used, rows = np.unique(device, return_inverse=True)
    return np.array([known.get(number, MISSING) or MISSING for number in used.tolist()] or [MISSING], np.int64)[rows]


def _launches(correlation: Ints, calls: Columns) -> Ints:
    """Id of the call with each correlation, `MISSING` for none."""
    if not calls:
        return np.full(len(correlation), MISSING, np.int64)
    order = np.argsort(_ints(calls["correlation"]), kind="stable")
    known = _ints(calls["correlation"])[order]
    at = np.clip(np.searchsorted(known, correlation), 0, len(known) - 1)
    found = (known[at] == correlation) & (correlation > 0)
    return np.where(found, _ints(calls["call"])[order[at]], MISSING)


def _of_copies(
    names: Sequence[str], rows: NDArray[Any], copy: NDArray[np.bool_], function: Callable[[str], str | None]
) -> Coded:
    return coded(np.where(copy, rows, -1), [function(name) for name in names])


def _classes(names: Sequence[str], rows: NDArray[Any], activity: NDArray[Any], ops: Ops, op: Ints) -> Coded:
    """Class of each kernel; where its name alone does not tell, the operator that launched it does."""
    asked, phase = ops.of("name", op), ops.of("phase", op)
    assert isinstance(asked, Coded)
    assert isinstance(phase, Coded)
    optimizer = len(asked.values)
    stepping = np.isin(phase.codes, [code for code, text in enumerate(phase.values) if text == "optimizer"])
    operator = np.where(stepping, optimizer, asked.codes).astype(np.int64)
    pairs, at = np.unique(rows.astype(np.int64) * (optimizer + 2) + operator + 1, return_inverse=True)
    classes = []
    for name, code in zip((pairs // (optimizer + 2)).tolist(), (pairs % (optimizer + 2) - 1).tolist(), strict=True):
        by = None if code < 0 else "Optimizer.step" if code == optimizer else asked.values[code]
        classes.append(kernel_classes.classify(names[name], by))
    return Coded(np.where(activity > 0, len(classes), at).astype(np.int32), [*classes, "copy"])


def _direction(name: str) -> str | None:
    short = name.lower().replace(" ", "")
    return next((said for said, texts in _DIRECTIONS if any(text in short for text in texts)), None)


def _pageable(name: str) -> int:
    lower = name.lower()
    return 1 if "pageable" in lower else 0 if "pinned" in lower else -1


def _products(trace: Trace, codes: NDArray[np.int32]) -> Ints:
    """Product of the numbers of each JSON list; `MISSING` for what is none."""
    used, rows = np.unique(codes, return_inverse=True)
    texts = trace.texts("text")
    values = []
    for code in used.tolist():
        try:
            numbers = msgspec.json.decode(texts[code], type=list[int]) if code >= 0 else []
        except (msgspec.MsgspecError, UnicodeDecodeError):
            numbers = []
        values.append(prod(numbers) if numbers else MISSING)
    return np.array([integer(value) for value in values] or [MISSING], np.int64)[rows]


def _mark_blocking(kernels: Columns, calls: Columns) -> None:
    """Sets `blocks` of runtime calls: a synchronisation, or a copy whose call did not return before it was done.

    An asynchronous copy of pinned or device memory does not wait; a tiny one can be done before its call has returned.
    One of pageable memory holds the host up while the driver copies it piece by piece.
    """
    if not calls:
        return
    kind = calls["kind"]
    assert isinstance(kind, Coded)
    blocks = np.array([text == "sync" for text in kind.values], bool)[kind.codes]
    if kernels:
        call = _ints(kernels["call"])
        activity = kernels["kind"]
        assert isinstance(activity, Coded)
        copies = np.flatnonzero((activity.codes == _MEMCPY) & (call != MISSING))
        rows = call[copies] - _ints(calls["call"])[0]
        named = calls["name"]
        assert isinstance(named, Coded)
        returns = np.array(["Async" in text for text in named.values], bool)[named.codes[rows]]
        pageable = np.asarray(kernels["pageable"])[copies] > 0
        waits = ~returns | pageable
        copies, rows, pageable = copies[waits], rows[waits], pageable[waits]
        ends = _ints(kernels["start_ns"])[copies] + _ints(kernels["dur_ns"])[copies]
        waited = (_ints(calls["start_ns"])[rows] + _ints(calls["dur_ns"])[rows] >= ends) | pageable
        blocks[rows[waited]] = True
    calls["blocks"] = blocks


# -- synchronisation -------------------------------------------------------------------------------------------------


def _stream_waits(trace: Trace) -> Columns:
    """What the device's own record says of synchronisations; streams and records of -1 mean none."""
    table = trace.table("sync")
    if not len(table):
        return {}
    table = table.take(np.argsort(table["start_ns"], kind="stable"))
    names = ("correlation", "device", "stream", "waits_for_stream", "waits_for_record")
    given: Columns = {name: np.where(table[name] >= 0, table[name], MISSING) for name in names}
    return {"start_ns": table["start_ns"], "dur_ns": np.maximum(table["dur_ns"], 0), **given}


# -- memory ----------------------------------------------------------------------------------------------------------


def _memory(trace: Trace, windows: Sequence[Window], ops: Ops) -> Columns:
    table = trace.table("memory")
    if not len(table):
        return {}
    table = table.take(np.argsort(table["start_ns"], kind="stable"))
    start = table["start_ns"]
    on_host = table["device_type"] == 0
    return {
        "start_ns": start,
        "bytes": table["bytes_changed"],
        "allocated_bytes": table["total_allocated"],
        "reserved_bytes": table["total_reserved"],
        "address": table["address"],
        "device_kind": Coded(np.where(on_host, 0, 1).astype(np.int32), ("cpu", "gpu")),
        "device": np.where(on_host | (table["device_id"] < 0), MISSING, table["device_id"]),
        "thread": trace.thread_numbers()[table["thread"]],
        "op": ops.around(table["thread"], start, start),
        "step": _steps(start, windows),
    }
