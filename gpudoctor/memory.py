"""What holds the GPUs' memory, for reports: the memory tables as part of a Diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from gpudoctor.diagnosis import (
    AllocatorReplay,
    DeviceMemory,
    Location,
    Memory,
    MemoryReading,
    MemoryShare,
    SegmentUse,
)
from gpudoctor.profile import Profile

MOST = 200
"""Lines kept of each kind: a report shows some, the tables have all."""


def memory(profile: Profile) -> Memory | None:
    """The part on memory; None without an allocator snapshot."""
    if not profile.measured("allocator"):
        return None
    devices = tuple(_device(row) for row in profile.rows("allocator"))
    reserved = {device.device: device.reserved_bytes for device in devices}
    peak = profile.rows("memory_peak")
    return Memory(
        devices,
        peak=tuple(_peak(row) for row in peak[:MOST]),
        kept=tuple(_kept(row, reserved) for row in profile.rows("fragmentation")[:MOST]),
        replays=tuple(_replay(row) for row in profile.rows("allocator_replays")),
        segments=_segments(profile),
        curve=_curve(profile),
        inferred=any(row["inferred"] for row in peak),
        history=any(device.peak_bytes is not None for device in devices),
    )


SEGMENTS, STRETCHES, READINGS = 150, 32, 400
"""Kinds of segments, stretches of each and readings a device that are kept for a picture: what a screen can show."""


def _segments(profile: Profile) -> tuple[SegmentUse, ...]:
    """The segments by how they are filled, those with most free memory first."""
    blocks: dict[int, list[tuple[int, int]]] = {}
    table = profile.table("blocks")
    used = table[table["state"].ne("inactive")]
    for segment, address, size in zip(used["segment"], used["address"], used["bytes"], strict=True):
        blocks.setdefault(int(segment), []).append((int(address), int(size)))
    alike: Counter[tuple[int, int, int, str]] = Counter()
    for row in profile.rows("segments"):
        fill = _fill(row["address"], row["total_bytes"], blocks.get(row["segment"], []))
        alike[row["device"], row["total_bytes"], row["live_bytes"], fill] += 1
    order = sorted(alike, key=lambda one: (one[0], -(one[1] - one[2]) * alike[one], -one[1], one[3]))
    return tuple(SegmentUse(*one[:3], alike[one], one[3]) for one in order[:SEGMENTS])


def _fill(start: int, size: int, used: Sequence[tuple[int, int]]) -> str:
    if not size:
        return ""
    length = size / STRETCHES
    held = [0.0] * STRETCHES
    for address, count in used:
        first, last = address - start, address - start + count
        for place in range(max(0, int(first / length)), min(STRETCHES, int((last - 1) / length) + 1)):
            held[place] += min(last, (place + 1) * length) - max(first, place * length)
    return "".join(str(min(9, ceil(10 * part / length - 1e-9))) for part in held)


def _curve(profile: Profile) -> tuple[MemoryReading, ...]:
    """The history, thinned so that the most of each stretch stays."""
    made: list[MemoryReading] = []
    table = profile.table("memory_curve").dropna(subset=["time_ns"])
    for device in sorted(set(table["device"].tolist())):
        rows = table[table["device"].eq(device)]
        levels, times = rows["allocated_bytes"].tolist(), rows["time_ns"].tolist()
        stride = -(-len(levels) // READINGS) or 1
        made += [
            MemoryReading(int(device), int(times[at]), int(max(levels[at : at + stride])))
            for at in range(0, len(levels), stride)
        ]
    return tuple(made)


def _device(row: Mapping[str, Any]) -> DeviceMemory:
    names = [name for name in DeviceMemory.__dataclass_fields__ if name != "oom_where"]
    failed = _where(row["oom_file"], row["oom_line"], row["oom_function"])
    return DeviceMemory(**{name: row[name] for name in names}, oom_where=failed)


def _where(file: str | None, line: int | None, function: str | None) -> Location | None:
    return None if file is None or line is None else Location(file, int(line), function=function)


def _peak(row: Mapping[str, Any]) -> MemoryShare:
    where = _where(row["file"], row["line"], row["function"])
    bytes_, count, share = int(row["bytes"]), int(row["allocations"]), float(row["share"])
    return MemoryShare(int(row["device"]), row["category"], where, bytes_, count, share, row["without_bytes"])


def _kept(row: Mapping[str, Any], reserved: Mapping[int, int]) -> MemoryShare:
    device, free = int(row["device"]), int(row["free_bytes"])
    where = _where(row["file"], row["line"], row["function"])
    share = free / max(1, reserved.get(device, 0))
    return MemoryShare(
        device, row["category"], where, int(row["held_bytes"]), int(row["segments"]), share, free_bytes=free
    )


def _replay(row: Mapping[str, Any]) -> AllocatorReplay:
    return AllocatorReplay(**{name: row[name] for name in AllocatorReplay.__dataclass_fields__})
