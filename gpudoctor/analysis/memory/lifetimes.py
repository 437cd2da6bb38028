"""Allocations with their beginning and end, from the entries of a recorded trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.ingest.snapshot.contents import ACTIONS, Contents

ROUNDING = 512
"""Bytes to which the allocator rounds a request up (`kMinBlockSize`, c10/core/CachingDeviceAllocator.h)."""

_ALLOC, _REQUESTED, _COMPLETED, _FREE = (
    ACTIONS.index(name) for name in ("alloc", "free_requested", "free_completed", "free")
)
NEVER = -1

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Allocations:
    """Every allocation that the recording saw or that was alive at its end; columns of equal length.

    Those from before the recording come after the others.

    Attributes:
        device: GPU index.
        address: first byte.
        bytes: what it takes, rounded up as the allocator does.
        requested: what was asked for; -1 where not known.
        stream: stream it belongs to.
        born: entry of the trace that made it; -1: before the recording.
        released: entry that gave it back; -1: never.
        died: entry after which its memory could be used again; -1: never.
        stack: row in the snapshot's stacks of who asked for it; -1: not known.
    """

    device: Integers
    address: Integers
    bytes: Integers
    requested: Integers
    stream: Integers
    born: Integers
    released: Integers
    died: Integers
    stack: Integers

    def __len__(self) -> int:
        return len(self.address)


def rounded(sizes: Integers) -> Integers:
    """Sizes as the allocator rounds them, at least one block."""
    return np.maximum((sizes + (ROUNDING - 1)) // ROUNDING, 1) * ROUNDING


def allocations(contents: Contents) -> Allocations:
    """Pairs allocations with releases: of entries at one address, a release belongs to the allocation before it."""
    seen = _seen(contents)
    return _joined(seen, _before(contents, seen))


def _seen(contents: Contents) -> Allocations:
    """Allocations that the trace has an entry of: of their beginning, of their end, or of both."""
    trace = contents.trace
    rows = np.flatnonzero(np.isin(trace.action, (_ALLOC, _REQUESTED, _COMPLETED, _FREE)))
    order = rows[np.lexsort((rows, trace.address[rows], trace.device[rows]))]
    action = trace.action[order]
    fresh = np.ones(len(order), bool)
    same = (trace.address[order][1:] == trace.address[order][:-1]) & (
        trace.device[order][1:] == trace.device[order][:-1]
    )
    ends = np.isin(action, (_COMPLETED, _FREE))
    fresh[1:] = ~same | (action[1:] == _ALLOC) | ends[:-1]  # an entry that begins another life at this address
    life = np.cumsum(fresh) - 1
    lives = int(life[-1]) + 1 if len(life) else 0
    first = order[fresh] if len(order) else order
    born = _entry_of(order, action == _ALLOC, life, lives)
    released = _entry_of(order, np.isin(action, (_REQUESTED, _FREE)), life, lives)
    died = _entry_of(order, ends, life, lives)
    released = np.where(released == NEVER, died, released)
    size = trace.bytes[np.where(born != NEVER, born, first)]
    return Allocations(
        device=trace.device[first],
        address=trace.address[first],
        bytes=rounded(size),
        requested=size,
        stream=trace.stream[first],
        born=born,
        released=released,
        died=died,
        stack=trace.stack[first],  # a release carries the stack of its allocation
    )


def _entry_of(order: Integers, chosen: NDArray[np.bool_], life: Integers, lives: int) -> Integers:
    made = np.full(lives, NEVER, np.int64)
    made[life[chosen]] = order[chosen]
    return made


def _before(contents: Contents, seen: Allocations) -> Allocations:
    """Blocks in use at the end whose beginning the trace does not have."""
    blocks = contents.blocks
    devices = np.array([int(segment.get("device", 0)) for segment in contents.segments], np.int64)
    streams = np.array([int(segment.get("stream", 0)) & ((1 << 63) - 1) for segment in contents.segments], np.int64)
    alive = seen.died == NEVER
    known = set(zip(seen.device[alive].tolist(), seen.address[alive].tolist(), strict=True))
    used = np.flatnonzero(blocks.state != 2)
    places = zip(devices[blocks.segment[used]].tolist(), blocks.address[used].tolist(), strict=True)
    rows = used[np.array([place not in known for place in places], bool)] if len(used) else used
    owner = blocks.segment[rows]
    nothing = np.full(len(rows), NEVER, np.int64)
    return Allocations(
        device=devices[owner] if len(rows) else rows,
        address=blocks.address[rows],
        bytes=blocks.size[rows],
        requested=blocks.requested[rows],
        stream=streams[owner] if len(rows) else rows,
        born=nothing,
        released=nothing,
        died=nothing,
        stack=blocks.stack[rows],
    )


def _joined(first: Allocations, second: Allocations) -> Allocations:
    names = Allocations.__dataclass_fields__
    return Allocations(**{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names})
