"""What holds the GPUs' memory."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis.finding import Location


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """What one line holds of a device's memory.

    Attributes:
        device: GPU index.
        category: parameters, gradients, optimizer state, activations, inputs, temporaries, workspaces or other.
        where: the user's line that asked for it; null when none is known.
        bytes: bytes it holds.
        count: in so many allocations; of kept segments, how many it keeps.
        share: of the peak (0 to 1); of kept segments, of the reserved memory.
        without_bytes: the peak if the line allocated none of it; null where that was not worked out.
        free_bytes: of kept segments, what is free in them and cannot be given back.
    """

    device: int
    category: str | None
    where: Location | None
    bytes: int
    count: int
    share: float
    without_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A GPU's caching allocator at the end of what was recorded.

    Attributes:
        device: GPU index.
        reserved_bytes: memory held from the driver.
        allocated_bytes: in blocks that tensors hold.
        cached_bytes: in segments that are free as a whole; `empty_cache()` would give them back.
        inactive_split_bytes: free, in segments that something alive keeps.
        largest_free_bytes: largest free block.
        peak_bytes: most that was allocated at once in the recorded history; null without one.
        capacity_bytes: the device's memory; null where not known.
        oom_bytes: what the last request that failed asked for; null when none failed.
        oom_where: the user's line whose request failed.
    """

    device: int
    reserved_bytes: int
    allocated_bytes: int
    cached_bytes: int
    inactive_split_bytes: int
    largest_free_bytes: int
    peak_bytes: int | None = None
    capacity_bytes: int | None = None
    oom_bytes: int | None = None
    oom_where: Location | None = None


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """Segments of a device that look alike.

    Attributes:
        device: GPU index.
        bytes: size of each.
        live_bytes: what tensors hold of each.
        count: how many look so.
        fill: a digit for each of equal stretches, from its first byte to its last: tenths of it in use, rounded up.
    """

    device: int
    bytes: int
    live_bytes: int
    count: int
    fill: str


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory in use on a device at a moment of the recorded history, ns from its first entry."""

    device: int
    time_ns: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatorReplay:
    """What a model of the caching allocator says of the recorded allocations under other settings: an estimate.

    Attributes:
        device: GPU index.
        setting: the setting as `PYTORCH_CUDA_ALLOC_CONF` takes it; empty for the recorded one.
        peak_reserved_bytes: most that would be reserved.
        reserved_bytes: reserved at the end.
        retries: allocations for which the cache would be emptied first; null where the device's memory is not known.
        ooms: requests that would fail; null likewise.
    """

    device: int
    setting: str
    peak_reserved_bytes: int
    reserved_bytes: int
    retries: int | None = None
    ooms: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What holds the GPUs' memory.

    Attributes:
        devices: by GPU index.
        peak: lines by what they held when most was allocated, largest first.
        kept: lines by the free memory in segments that they keep from being given back, largest first.
        replays: predictions under other allocator settings.
        segments: what is in use of the segments, the ones with most free memory first.
        curve: memory in use over the recorded history; each reading is the most since the one before.
        inferred: the categories follow from stacks and lifetimes, not from the run's own objects.
        history: allocations were recorded; without, `peak` is what there was at the end.
    """

    devices: tuple[DeviceMemory, ...]
    peak: tuple[MemoryShare, ...] = ()
    kept: tuple[MemoryShare, ...] = ()
    replays: tuple[AllocatorReplay, ...] = ()
    segments: tuple[SegmentUse, ...] = ()
    curve: tuple[MemoryReading, ...] = ()
    inferred: bool = True
    history: bool = True
