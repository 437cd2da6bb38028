"""A recorded history as a sequence for the model of the allocator, and the segments that it began with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpudoctor.analysis.allocator.replay import Event, StartSegment
from gpudoctor.analysis.memory.lifetimes import NEVER, Allocations
from gpudoctor.analysis.memory.state import Segments


def events(allocations: Allocations, device: int, failed: Sequence[tuple[int, int]] = ()) -> Iterator[Event]:
    """The allocations and releases of a device in the order of the trace; keys are rows of `allocations`.

    Args:
        allocations: of all devices.
        device: GPU index.
        failed: entry and bytes of requests that failed: they are made and given back at once.
    """
    left = sorted(failed, reverse=True)
    mine = allocations.device == device
    begun = np.flatnonzero(mine & (allocations.born != NEVER))
    ended = np.flatnonzero(mine & (allocations.died != NEVER))
    entries = np.concatenate([allocations.born[begun], allocations.died[ended]])
    rows = np.concatenate([begun, ended])
    kinds = np.concatenate([np.ones(len(begun), bool), np.zeros(len(ended), bool)])
    order = np.argsort(entries, kind="stable")
    sizes = np.where(allocations.requested < 0, allocations.bytes, allocations.requested)
    for entry, row, fresh in zip(entries[order].tolist(), rows[order].tolist(), kinds[order].tolist(), strict=True):
        while left and left[-1][0] < entry:
            yield from _once(*left.pop())
        if fresh:
            yield Event("alloc", row, int(sizes[row]), int(allocations.stream[row]))
        else:
            yield Event("free", row)
    for request in reversed(left):
        yield from _once(*request)


def _once(entry: int, size: int) -> Iterator[Event]:
    yield Event("alloc", -entry - 1, size)
    yield Event("free", -entry - 1)


def from_empty(allocations: Allocations, device: int, failed: Sequence[tuple[int, int]] = ()) -> Iterator[Event]:
    """The same, with what was alive before allocated first, in the order of its addresses."""
    old = np.flatnonzero((allocations.device == device) & (allocations.born == NEVER))
    for row in old[np.argsort(allocations.address[old], kind="stable")].tolist():
        requested = int(allocations.requested[row])
        size = requested if requested >= 0 else int(allocations.bytes[row])
        yield Event("alloc", row, size, int(allocations.stream[row]))
    yield from events(allocations, device, failed)


def beginning(allocations: Allocations, segments: Segments, device: int) -> list[StartSegment]:
    """The segments of a device with what was alive in them when the recording began.

    Segments that were given back since are not known; nor are those that came since told from the others, unless
    nothing in them is from before.
    """
    own = np.flatnonzero(segments.device == device)
    own = own[np.argsort(segments.address[own], kind="stable")]
    old = np.flatnonzero((allocations.device == device) & (allocations.born == NEVER))
    old = old[np.argsort(allocations.address[old], kind="stable")]
    place = np.searchsorted(segments.address[own], allocations.address[old], side="right") - 1
    made = []
    for at, segment in enumerate(own.tolist()):
        start, size = int(segments.address[segment]), int(segments.total[segment])
        used: list[tuple[int, int, int]] = []
        reached = start
        for row in old[place == at].tolist() if len(old) else ():
            address = int(allocations.address[row])
            length = min(int(allocations.bytes[row]), start + size - address)
            if address < reached or length <= 0:
                continue  # of a segment that is no longer there
            used.append((row, address, length))
            reached = address + length
        pool = (int(segments.stream[segment]), bool(segments.small[segment]), int(segments.private[segment]))
        made.append(StartSegment(start, size, pool, tuple(used)))
    return made
