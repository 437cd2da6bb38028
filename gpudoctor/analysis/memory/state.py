"""What the segments looked like at the end: free, kept, and by whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.memory.lifetimes import Integers
from gpudoctor.ingest.snapshot.contents import Contents

_LIVE, _PENDING, _FREE = range(3)
PAGE = 2 << 20
"""Bytes that expandable segments map and unmap at once (`kSmallBuffer`, c10/core/CachingDeviceAllocator.h)."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of all devices; columns of equal length.

    Attributes:
        device, address, total, stream: as recorded; bytes.
        live, pending, free: bytes in blocks that tensors hold, that a stream may still use, that are free.
        largest_free: bytes of the largest free block.
        live_blocks: how many blocks tensors hold.
        holder: block that holds most of it, -1 for none.
        small, private, expandable: of the small pool; of a pool of its own; grows in place.
    """

    device: Integers
    address: Integers
    total: Integers
    stream: Integers
    live: Integers
    pending: Integers
    free: Integers
    largest_free: Integers
    live_blocks: Integers
    holder: Integers
    small: NDArray[np.bool_]
    private: NDArray[np.bool_]
    expandable: NDArray[np.bool_]

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Whether something in it is in use: what is free in it cannot be given back."""
        return self.live + self.pending > 0


def segments(contents: Contents) -> Segments:
    """The segments with what their blocks add up to."""
    given, blocks = contents.segments, contents.blocks
    count = len(given)
    sums = [_sum(blocks.segment, np.where(blocks.state == state, blocks.size, 0), count) for state in range(3)]
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, blocks.segment, np.where(blocks.state == _FREE, blocks.size, 0))
    return Segments(
        device=_column(contents, "device"),
        address=_column(contents, "address"),
        total=_column(contents, "total_size"),
        stream=_column(contents, "stream"),
        live=sums[_LIVE],
        pending=sums[_PENDING],
        free=sums[_FREE],
        largest_free=largest,
        live_blocks=np.bincount(blocks.segment[blocks.state == _LIVE], minlength=count).astype(np.int64),
        holder=_holders(contents, count),
        small=np.array([each.get("segment_type") == "small" for each in given], bool),
        private=np.array([tuple(each.get("segment_pool_id") or (0, 0)) != (0, 0) for each in given], bool),
        expandable=np.array([each.get("is_expandable") is True for each in given], bool),
    )


def _column(contents: Contents, name: str) -> Integers:
    values = [each.get(name, 0) for each in contents.segments]
    return np.array([value if isinstance(value, int) and abs(value) < 1 << 63 else 0 for value in values], np.int64)


def _sum(groups: Integers, values: Integers, count: int) -> Integers:
    made = np.zeros(count, np.int64)
    np.add.at(made, groups, values)
    return made


def _holders(contents: Contents, count: int) -> Integers:
    """For each segment its largest block in use; of several, the first."""
    blocks = contents.blocks
    used = np.flatnonzero(blocks.state != _FREE)
    order = used[np.lexsort((blocks.address[used], -blocks.size[used], blocks.segment[used]))]
    owners, first = np.unique(blocks.segment[order], return_index=True)
    made = np.full(count, -1, np.int64)
    made[owners] = order[first]
    return made
