"""The memory tables of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.memory import curve as curves
from gpudoctor.analysis.memory.allocators import allocator, failed_requests, failure
from gpudoctor.analysis.memory.categories import CATEGORIES
from gpudoctor.analysis.memory.lifetimes import NEVER, Integers
from gpudoctor.analysis.memory.places import NOWHERE
from gpudoctor.analysis.memory.predictions import predictions
from gpudoctor.analysis.memory.reading import Reading, devices, has_history, times_ns
from gpudoctor.columns import MISSING, Coded, Columns, coded, of_rows
from gpudoctor.ingest.snapshot.contents import STATES

WITHOUT = 10
"""Lines for which the peak is worked out anew without them."""


def tables(read: Reading, capacity: Mapping[int, int] | None = None) -> dict[str, Columns]:
    """The tables that a snapshot fills.

    Args:
        read: the snapshot.
        capacity: bytes of memory by GPU index, where known.
    """
    shapes = {
        "segments": _segments(read),
        "blocks": _blocks(read),
        "fragmentation": _fragmentation(read),
        "memory_peak": _peak(read),
        "allocator": allocator(read, capacity or {}),
    }
    if has_history(read):
        shapes |= {"allocations": _allocations(read), "memory_curve": _curve(read)}
        if rows := _replays(read, capacity or {}):
            shapes["allocator_replays"] = of_rows(rows)
    return shapes


def _replays(read: Reading, capacity: Mapping[int, int]) -> list[dict[str, Any]]:
    settings = read.contents.settings
    made = [
        predictions(read.allocations, device, settings, _room(read, device, capacity), failed_requests(read, device))
        for device in devices(read)
    ]
    return [row for rows in made for row in rows]


def _room(read: Reading, device: int, capacity: Mapping[int, int]) -> int | None:
    """What there is at most: at a failed request what it held and the driver had left; else the device."""
    failed = failure(read, device)
    if failed["oom_device_free_bytes"] is not None:
        return int(failed["oom_reserved_bytes"]) + int(failed["oom_device_free_bytes"])
    return capacity.get(device)


def _place(read: Reading, stacks: Integers, category: Integers, inferred: NDArray[np.bool_] | None) -> dict[str, Any]:
    """The columns of a place. `category` -1 is null."""
    found = [*read.places, NOWHERE]
    lines = np.array([place.line if place.file is not None else MISSING for place in found], np.int64)
    sure = np.ones(len(category), np.int8) if inferred is None else inferred.astype(np.int8)
    return {
        "file": _coded(stacks, [place.file for place in found]),
        "line": lines[stacks],
        "function": _coded(stacks, [place.function for place in found]),
        "category": coded(category, CATEGORIES),
        "inferred": np.where(category < 0, -1, sure).astype(np.int8),
    }


def _coded(stacks: Integers, texts: Sequence[str | None]) -> Coded:
    return coded(np.where(stacks < 0, len(texts) - 1, stacks), texts)


def _by_block(read: Reading) -> tuple[Integers, NDArray[np.bool_]]:
    """Category of each block, -1 for a free one, and whether it is inferred."""
    blocks, made = read.contents.blocks, read.allocations
    alive = np.flatnonzero(made.died == NEVER)
    of = dict(
        zip(zip(made.device[alive].tolist(), made.address[alive].tolist(), strict=True), alive.tolist(), strict=True)
    )
    device = read.segments.device[blocks.segment]
    rows = [
        of.get(key, -1) if state != 2 else -1
        for key, state in zip(
            zip(device.tolist(), blocks.address.tolist(), strict=True), blocks.state.tolist(), strict=True
        )
    ]
    at = np.array(rows, np.int64)
    if not len(made):
        return at, np.ones(len(at), bool)
    return np.where(at >= 0, read.category[at], -1), np.where(at >= 0, read.inferred[at], True)


def _blocks(read: Reading) -> Columns:
    blocks = read.contents.blocks
    category, inferred = _by_block(read)
    return {
        "block": np.arange(len(blocks.size)),
        "segment": blocks.segment,
        "device": read.segments.device[blocks.segment] if len(blocks.size) else blocks.segment,
        "address": blocks.address,
        "bytes": blocks.size,
        "requested_bytes": np.where(blocks.requested < 0, MISSING, blocks.requested),
        "state": coded(blocks.state, STATES),
        **_place(read, np.where(blocks.state == 2, -1, blocks.stack), category, inferred),
    }


def _holders(read: Reading) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Stack, category and whether inferred of each segment's holder; -1 where it has none."""
    holder = read.segments.holder
    category, inferred = _by_block(read)
    if not len(category):
        return holder, holder, np.ones(len(holder), bool)
    there = holder >= 0
    stack = np.where(there, read.contents.blocks.stack[holder], -1)
    return stack, np.where(there, category[holder], -1), np.where(there, inferred[holder], True)


def _segments(read: Reading) -> Columns:
    each = read.segments
    return {
        "segment": np.arange(len(each.total)),
        "device": each.device,
        "address": each.address,
        "total_bytes": each.total,
        "live_bytes": each.live,
        "pending_bytes": each.pending,
        "free_bytes": each.free,
        "largest_free_bytes": each.largest_free,
        "live_blocks": each.live_blocks,
        "stream": each.stream,
        "pool": coded(each.small.astype(np.int64), ["large", "small"]),
        "private_pool": each.private,
        "expandable": each.expandable,
        **_place(read, *_holders(read)),
    }


def _fragmentation(read: Reading) -> Columns:
    """Segments in use that have free memory, by who holds most of each."""
    each = read.segments
    stack, category, inferred = _holders(read)
    partly = np.flatnonzero(each.kept & (each.free > 0))
    groups = _grouped(read, each.device[partly], stack[partly], category[partly])
    rows = [partly[members] for members in groups]
    rows.sort(key=lambda members: -int(each.free[members].sum()))
    first = np.array([members[0] for members in rows], np.int64)
    return {
        "device": each.device[first],
        **_place(read, stack[first], category[first], inferred[first]),
        "segments": np.array([len(members) for members in rows], np.int64),
        "total_bytes": _each(each.total, rows),
        "held_bytes": _each(each.live, rows) + _each(each.pending, rows),
        "free_bytes": _each(each.free, rows),
        "largest_free_bytes": np.array([each.largest_free[members].max() for members in rows], np.int64),
    }


def _grouped(read: Reading, device: Integers, stacks: Integers, category: Integers) -> list[Integers]:
    """Rows that share device, user's line and category."""
    found = [*read.places, NOWHERE]
    numbers: dict[tuple[str | None, int, str | None], int] = {}
    line = np.array(
        [numbers.setdefault((place.file, place.line, place.function), len(numbers)) for place in found], np.int64
    )
    keys = np.stack([device, line[stacks], category]) if len(device) else np.empty((3, 0), np.int64)
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    edges = np.flatnonzero(np.diff(group[order])) + 1
    return [part for part in np.split(order, edges) if len(part)]


def _each(values: Integers, rows: Iterable[Integers]) -> Integers:
    return np.array([values[members].sum() for members in rows], np.int64)


def _allocations(read: Reading) -> Columns:
    made = read.allocations
    peaks = np.zeros(len(made), bool)
    for device in devices(read):
        peaks |= curves.alive_at(made, device, curves.curve(made, device).peak_entry)
    return {
        "allocation": np.arange(len(made)),
        "device": made.device,
        "address": made.address,
        "bytes": made.bytes,
        "requested_bytes": np.where(made.requested < 0, MISSING, made.requested),
        "stream": made.stream,
        "start_ns": times_ns(read, made.born),
        "release_ns": times_ns(read, made.released),
        "end_ns": times_ns(read, made.died),
        "at_peak": peaks,
        **_place(read, made.stack, read.category, read.inferred),
    }


def _curve(read: Reading) -> Columns:
    parts = [(device, *curves.curve(read.allocations, device).thinned()) for device in devices(read)]
    return {
        "device": np.concatenate([np.full(len(entries), device, np.int64) for device, entries, _ in parts]),
        "time_ns": np.concatenate([times_ns(read, entries) for _, entries, _ in parts]),
        "allocated_bytes": np.concatenate([levels for _, _, levels in parts]),
    }


def _peak(read: Reading) -> Columns:
    made = read.allocations
    rows: list[Integers] = []
    shares: list[float] = []
    without: list[int] = []
    for device in devices(read):
        whole = curves.curve(made, device)
        alive = np.flatnonzero(curves.alive_at(made, device, whole.peak_entry))
        groups = [alive[part] for part in _grouped(read, made.device[alive], made.stack[alive], read.category[alive])]
        groups.sort(key=lambda members: -int(made.bytes[members].sum()))
        for place, members in enumerate(groups):
            rows.append(members)
            shares.append(int(made.bytes[members].sum()) / max(whole.peak_bytes, 1))
            without.append(_without(read, device, members[0]) if place < WITHOUT else MISSING)
    first = np.array([members[0] for members in rows], np.int64)
    return {
        "device": made.device[first],
        **_place(read, made.stack[first], read.category[first], read.inferred[first]),
        "bytes": _each(made.bytes, rows),
        "allocations": np.array([len(members) for members in rows], np.int64),
        "share": np.array(shares, np.float64),
        "without_bytes": np.array(without, np.int64),
    }


def _without(read: Reading, device: int, row: int) -> int:
    """The peak if the line of an allocation had allocated nothing of that category."""
    made = read.allocations
    found = [*read.places, NOWHERE]
    mine = found[int(made.stack[row])]
    same = np.array(
        [(place.file, place.line, place.function) == (mine.file, mine.line, mine.function) for place in found]
    )
    left_out = same[made.stack] & (read.category == read.category[row])
    return curves.curve(made, device, left_out).peak_bytes
