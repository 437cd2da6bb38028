"""The table `allocator`: one row a device, with the request that failed last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.memory import curve as curves
from gpudoctor.analysis.memory.lifetimes import Integers
from gpudoctor.analysis.memory.places import NOWHERE
from gpudoctor.analysis.memory.reading import LAST_OF_BLOCKS, Reading, devices, times_ns
from gpudoctor.columns import MISSING, Columns, coded
from gpudoctor.ingest.snapshot.contents import ACTIONS

_OOM, _GROWN, _SHRUNK = ACTIONS.index("oom"), ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


def allocator(read: Reading, capacity: Mapping[int, int]) -> Columns:
    """The table; `capacity` is bytes of memory by GPU index, where known."""
    rows = [_of_device(read, device, capacity.get(device)) for device in devices(read)]
    names = rows[0] if rows else ()
    made: dict[str, Any] = {name: [row[name] for row in rows] for name in names}
    columns: dict[str, Any] = {}
    for name, cells in made.items():
        if name in ("oom_file", "oom_function"):
            columns[name] = coded(np.arange(len(cells)), cells)
        elif name == "expandable_segments":
            columns[name] = np.array([-1 if cell is None else cell for cell in cells], np.int8)
        elif name == "gc_threshold":
            columns[name] = np.array([np.nan if cell is None else cell for cell in cells], np.float64)
        else:
            columns[name] = np.array([MISSING if cell is None else cell for cell in cells], np.int64)
    return columns


def _of_device(read: Reading, device: int, capacity: int | None) -> dict[str, Any]:
    each, trace = read.segments, read.contents.trace
    mine, entries = each.device == device, trace.device == device
    whole = curves.curve(read.allocations, device)
    peak = times_ns(read, np.array([whole.peak_entry]))[0]
    grown = _count(trace.action, entries, _GROWN)
    shrunk = _count(trace.action, entries, _SHRUNK)
    return {
        "device": device,
        "reserved_bytes": int(each.total[mine].sum()),
        "allocated_bytes": int(each.live[mine].sum()),
        "active_bytes": int((each.live + each.pending)[mine].sum()),
        "cached_bytes": int(each.total[mine & ~each.kept].sum()),
        "inactive_split_bytes": int(each.free[mine & each.kept].sum()),
        "largest_free_bytes": int(each.largest_free[mine].max(initial=0)),
        "segments": int(mine.sum()),
        "small_reserved_bytes": int(each.total[mine & each.small].sum()),
        "peak_bytes": whole.peak_bytes if (trace.action[entries] <= LAST_OF_BLOCKS).any() else None,
        "peak_ns": None if peak == MISSING else int(peak),
        "entries": int(entries.sum()),
        "segment_allocs": grown if grown or shrunk else None,
        "segment_frees": shrunk if grown or shrunk else None,
        **failure(read, device),
        "capacity_bytes": capacity,
        **_settings(read.contents.settings),
    }


def _count(actions: Integers, mine: NDArray[np.bool_], names: Sequence[str]) -> int:
    return int(np.isin(actions[mine], [ACTIONS.index(name) for name in names]).sum())


def failure(read: Reading, device: int) -> dict[str, Any]:
    """The last request of a device that failed, and what there was then."""
    trace, each = read.contents.trace, read.segments
    failed = np.flatnonzero((trace.device == device) & (trace.action == _OOM))
    names = ("bytes", "device_free_bytes", "reserved_bytes", "allocated_bytes", "file", "line", "function")
    if not len(failed):
        return {"ooms": 0 if (trace.device == device).any() else None} | {f"oom_{name}": None for name in names}
    last = int(failed[-1])
    after = (trace.device == device) & (np.arange(len(trace)) > last)
    change = sum(
        sign * int(trace.bytes[after & np.isin(trace.action, [ACTIONS.index(name) for name in kinds])].sum())
        for sign, kinds in ((1, _GROWN), (-1, _SHRUNK))
    )
    place = read.places[trace.stack[last]] if trace.stack[last] >= 0 else NOWHERE
    alive = curves.alive_at(read.allocations, device, last)
    return {
        "ooms": len(failed),
        "oom_bytes": int(trace.bytes[last]),
        "oom_device_free_bytes": trace.device_free.get(last),
        "oom_reserved_bytes": int(each.total[each.device == device].sum()) - change,
        "oom_allocated_bytes": int(read.allocations.bytes[alive].sum()),
        "oom_file": place.file,
        "oom_line": place.line if place.file else None,
        "oom_function": place.function,
    }


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    split, threshold = settings.get("max_split_size"), settings.get("garbage_collection_threshold")
    expandable = settings.get("expandable_segments")
    return {
        "expandable_segments": expandable if isinstance(expandable, bool) else None,
        "max_split_bytes": split if isinstance(split, int) and 0 < split < 1 << 62 else None,
        "gc_threshold": float(threshold) if isinstance(threshold, (int, float)) and threshold > 0 else None,
    }


def failed_requests(read: Reading, device: int) -> list[tuple[int, int]]:
    """Entry and bytes of the requests of a device that failed."""
    trace = read.contents.trace
    rows = np.flatnonzero((trace.device == device) & (trace.action == _OOM))
    return list(zip(rows.tolist(), trace.bytes[rows].tolist(), strict=True))
