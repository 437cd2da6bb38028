"""Replays a recorded sequence of allocations through the model of the caching allocator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudoctor.analysis.allocator.model import Allocator, Block, OutOfMemoryError, Pool
from gpudoctor.analysis.allocator.settings import AllocatorSettings

Action = Literal["alloc", "free", "empty_cache"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a program asked of the allocator.

    Attributes:
        action: alloc, or free once the memory can be used again.
        key: which allocation; free names the one that alloc began.
        bytes: what was asked for.
        stream: stream of the allocation.
        pool: id of a memory pool; 0 for the allocator's own.
    """

    action: Action
    key: int = 0
    bytes: int = 0
    stream: int = 0
    pool: int = 0


@dataclass(frozen=True, slots=True)
class StartSegment:
    """A segment as it was when the recording began: used blocks as (key, address, size), in order of address."""

    address: int
    bytes: int
    pool: Pool
    used: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model says of a sequence; all in bytes or counts.

    Attributes:
        reserved_bytes, allocated_bytes: at the end.
        peak_reserved_bytes, peak_allocated_bytes: most at once.
        grown_bytes: asked from the driver during the replay.
        device_allocs, device_frees, retries, ooms: how often.
        largest_free_bytes: largest free block at the end.
        inactive_split_bytes: free at the end, in segments in use that are not expandable.
        unknown_frees: releases of allocations that nobody began.
        placed: address of each allocation that the replay made, by key.
    """

    reserved_bytes: int
    allocated_bytes: int
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    grown_bytes: int
    device_allocs: int
    device_frees: int
    retries: int
    ooms: int
    largest_free_bytes: int
    inactive_split_bytes: int
    unknown_frees: int
    placed: Mapping[int, int]


def replay(
    events: Iterable[Event],
    settings: AllocatorSettings,
    start: Sequence[StartSegment] = (),
    capacity_bytes: int | None = None,
) -> Outcome:
    """Places every allocation of a sequence.

    A request that fails is counted and left out, as is its release.

    Args:
        events: in order.
        settings: of the allocator.
        start: segments that are there already.
        capacity_bytes: memory that the driver has; None: without end. A threshold for garbage collection is a share of
            it, as in torch once `set_per_process_memory_fraction` was called; before that torch ignores the threshold.
    """
    allocator = Allocator(settings, capacity_bytes)
    live: dict[int, Block] = {}
    for segment in start:
        used = allocator.add_segment(
            segment.address, segment.bytes, segment.pool, [(address, size) for _, address, size in segment.used]
        )
        live |= {key: used[address] for key, address, _ in segment.used}
    began = allocator.reserved
    placed: dict[int, int] = {}
    failed: set[int] = set()
    peak_reserved, peak_allocated, grown, unknown = began, allocator.allocated, 0, 0
    for event in events:
        if event.action == "alloc":
            before = allocator.reserved
            try:
                block = allocator.allocate(event.bytes, event.stream, event.pool)
            except OutOfMemoryError:
                failed.add(event.key)
                continue
            live[event.key], placed[event.key] = block, block.address
            grown += max(0, allocator.reserved - before)
            peak_reserved = max(peak_reserved, allocator.reserved)
            peak_allocated = max(peak_allocated, allocator.allocated)
        elif event.action == "free":
            found = live.pop(event.key, None)
            if found is not None:
                allocator.free(found)
            elif event.key not in failed:
                unknown += 1
        else:
            allocator.empty_cache()
    free = allocator.free_blocks()
    counts = allocator.counts
    return Outcome(
        reserved_bytes=allocator.reserved,
        allocated_bytes=allocator.allocated,
        peak_reserved_bytes=peak_reserved,
        peak_allocated_bytes=peak_allocated,
        grown_bytes=grown,
        device_allocs=counts.device_allocs,
        device_frees=counts.device_frees,
        retries=counts.retries,
        ooms=counts.ooms,
        largest_free_bytes=max((block.size for block in free), default=0),
        inactive_split_bytes=allocator.inactive_split_bytes(),
        unknown_frees=unknown,
        placed=placed,
    )
