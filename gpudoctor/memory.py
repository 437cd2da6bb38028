"""What holds the GPUs' memory, for reports: the memory tables as part of a Diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.diagnosis import AllocatorReplay, DeviceMemory, Location, Memory, MemoryShare
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
        inferred=any(row["inferred"] for row in peak),
        history=any(device.peak_bytes is not None for device in devices),
    )


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
