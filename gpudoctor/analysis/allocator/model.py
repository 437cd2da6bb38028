"""The caching allocator itself: pools of free blocks, segments, splitting, merging, growing and giving back.

Written after what c10/cuda/CUDACachingAllocator.cpp does (torch 2.7 to 2.13): `malloc`, `get_free_block`,
`should_split`, `free_block`, `try_merge_blocks`, `try_allocate_expandable_block`, `release_available_cached_blocks`,
`release_cached_blocks` and `garbage_collect_cached_blocks`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from gpudoctor.analysis.allocator.settings import (
    LARGE_SEGMENT,
    MIN_BLOCK,
    SMALL_REQUEST,
    SMALL_SEGMENT,
    AllocatorSettings,
    segment_bytes,
)

ADDRESSES = 1 << 46
"""Bytes of addresses that an expandable segment may grow into: more than any device has, so that one is enough. torch
takes 1 1/8 of the device's memory (`find_expandable_block`) and begins another segment where that is used up."""

Pool = tuple[int, bool, int]
"""Stream, whether it is the pool of small requests, and the id of the memory pool (0: the allocator's own)."""


class OutOfMemoryError(Exception):
    """A request fits nowhere, on a device whose size is known."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment.

    Attributes:
        address, size: bytes.
        pool: where it goes when it is free.
        used: a tensor holds it, or a stream may still use it.
        before, after: its neighbours in the segment.
        mapped: there is memory behind its addresses; only an expandable segment has others.
        since: how many large requests there had been when it became free.
    """

    address: int
    size: int
    pool: Pool
    used: bool = False
    before: Block | None = None
    after: Block | None = None
    mapped: bool = True
    since: int = 0

    @property
    def whole(self) -> bool:
        """Whether it is a segment of its own."""
        return self.before is None and self.after is None


@dataclass(slots=True)
class Counts:
    """What happened: requests to the driver and back, caches emptied, requests that failed."""

    device_allocs: int = 0
    device_frees: int = 0
    retries: int = 0
    ooms: int = 0


@dataclass(slots=True)
class Allocator:
    """One device's allocator.

    Attributes:
        settings: how it places.
        capacity: bytes that the driver has to give; None: without end.
        reserved, allocated: bytes held from the driver, and in used blocks.
        counts: what happened so far.
    """

    settings: AllocatorSettings = field(default_factory=AllocatorSettings)
    capacity: int | None = None
    reserved: int = 0
    allocated: int = 0
    counts: Counts = field(default_factory=Counts)
    _free: dict[Pool, list[tuple[int, int, Block]]] = field(default_factory=dict)
    _heads: dict[Pool, Block] = field(default_factory=dict)  # first blocks of expandable segments; they stay the first
    _large_requests: int = 0
    _next_address: int = 1 << 40

    def allocate(self, request: int, stream: int = 0, pool_id: int = 0) -> Block:
        """A block for a request of so many bytes.

        Raises:
            OutOfMemoryError: there is no room; the cache was emptied for it.
        """
        size = self.settings.rounded(request)
        pool = (stream, size <= SMALL_REQUEST, pool_id)
        block = self._fitting(pool, size) or self._grown(pool, size)
        if self._splits(block, size):
            self._split(block, size)
        block.used = True
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Gives a block back to its pool; free neighbours become one."""
        block.used = False
        self.allocated -= block.size
        self._put(self._merged(block))

    def add_segment(self, address: int, size: int, pool: Pool, used: list[tuple[int, int]]) -> dict[int, Block]:
        """A segment as it was recorded.

        Args:
            address, size: of the segment, bytes.
            pool: where its blocks belong.
            used: address and size of its blocks in use, in order; what lies between is free.

        Returns:
            The used blocks by their address.
        """
        self.reserved += size
        at, last, made = address, None, {}
        for place, length in [*used, (address + size, 0)]:
            for start, extent, busy in ((at, place - at, False), (place, length, True)):
                if extent <= 0:
                    continue
                block = Block(start, extent, pool, busy, before=last)
                if last is not None:
                    last.after = block
                last = block
                if busy:
                    made[start] = block
                    self.allocated += extent
                else:
                    self._put(block)
            at = place + length
        return made

    def free_blocks(self) -> list[Block]:
        """All free blocks that have memory behind them."""
        return [block for entries in self._free.values() for _, _, block in entries]

    def inactive_split_bytes(self) -> int:
        """Free bytes in segments in use; those of expandable segments do not count, as in torch's statistics."""
        return sum(block.size for block in self.free_blocks() if not block.whole and not self._expandable(block))

    def empty_cache(self) -> None:
        """Gives back what can be given back; memory pools keep what they have, as long as a graph may use it."""
        for pool, entries in list(self._free.items()):
            for _, _, block in [] if pool[2] else list(entries):
                self._give_back(block)

    def _fitting(self, pool: Pool, size: int) -> Block | None:
        """The smallest free block that is large enough, of equals the one at the lowest address."""
        self._large_requests += not pool[1] and not pool[2]
        entries = self._free.get(pool)
        if not entries:
            return None
        at = bisect_left(entries, (size,))
        if at == len(entries):
            return None
        if self.settings.expandable:
            at = self._least_expandable(entries, at)
        block = entries[at][2]
        limit = self.settings.max_split_bytes
        if limit is not None and size < limit <= block.size:
            return None  # large blocks are kept for large requests
        if limit is not None and size >= limit and block.size >= size + LARGE_SEGMENT:
            return None  # and are given to those that nearly fill them
        del entries[at]
        return block

    @staticmethod
    def _least_expandable(entries: list[tuple[int, int, Block]], at: int) -> int:
        """The end of an expandable segment counts with the size that it can grow to, so that it is taken last."""

        def room(place: int) -> int:
            block = entries[place][2]
            return block.size + (block.after.size if block.after is not None and not block.after.mapped else 0)

        while at + 1 < len(entries) and room(at + 1) < room(at):
            at += 1
        return at

    def _splits(self, block: Block, size: int) -> bool:
        remaining = block.size - size
        if block.pool[1] or self.settings.expandable:
            return remaining >= MIN_BLOCK
        limit = self.settings.max_split_bytes
        return (limit is None or size < limit) and remaining > SMALL_REQUEST

    def _split(self, block: Block, size: int) -> None:
        self._put(self._cut(block, size))

    def _merged(self, block: Block) -> Block:
        """One block of a free block and its free neighbours, which leave their pool."""
        before, after = block.before, block.after
        if before is not None and not before.used and before.mapped:
            self._take(before)
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            block = before
        if after is not None and not after.used and after.mapped:
            self._take(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        return block

    def _put(self, block: Block) -> None:
        block.since = self._large_requests
        insort(self._free.setdefault(block.pool, []), (block.size, block.address, block), key=_order)

    def _take(self, block: Block) -> None:
        entries = self._free[block.pool]
        del entries[bisect_left(entries, (block.size, block.address), key=_order)]

    def _grown(self, pool: Pool, size: int) -> Block:
        """A block from the driver; where it has none left the cache is emptied first."""
        self._collect_garbage()
        block = self._from_driver(pool, size)
        if block is not None:
            return block
        if self._release_for(pool, size) and (block := self._from_driver(pool, size)) is not None:
            return block
        self.counts.retries += 1
        self.empty_cache()
        block = self._from_driver(pool, size)
        if block is None:
            self.counts.ooms += 1
            raise OutOfMemoryError
        return block

    def _from_driver(self, pool: Pool, size: int) -> Block | None:
        if self.settings.expandable:
            return self._mapped(pool, size)
        length = segment_bytes(size)
        if self.capacity is not None and self.reserved + length > self.capacity:
            return None
        self.reserved += length
        self.counts.device_allocs += 1
        block = Block(self._next_address, length, pool)
        self._next_address += -(-length // LARGE_SEGMENT) * LARGE_SEGMENT + LARGE_SEGMENT
        return block

    def _mapped(self, pool: Pool, size: int) -> Block | None:
        """A block from an expandable segment: free memory and addresses without memory in a row, lowest first.

        Memory that was mapped before the driver had no more stays where it is, free.
        """
        block = self._room(pool, size)
        if block is not None and not block.mapped:
            block = self._map(block, size)
        while block is not None and block.size < size:
            block = self._map(block.after, size - block.size) if block.after is not None else None
        if block is not None:
            self._take(block)
        return block

    def _map(self, hole: Block, size: int) -> Block | None:
        """Memory for the first bytes of addresses without, as whole pages: a free block, with its free neighbours."""
        page = _page(hole.pool)
        length = min(hole.size, -(-size // page) * page)
        if self.capacity is not None and self.reserved + length > self.capacity:
            return None
        if length < hole.size:
            self._cut(hole, length)
        hole.mapped = True
        self.reserved += length
        self.counts.device_allocs += 1
        block = self._merged(hole)
        self._put(block)
        return block

    @staticmethod
    def _cut(block: Block, size: int) -> Block:
        """What is left of a block behind its first bytes; it is in no pool yet."""
        rest = Block(
            block.address + size, block.size - size, block.pool, before=block, after=block.after, mapped=block.mapped
        )
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        return rest

    @staticmethod
    def _joined(first: Block, second: Block) -> Block:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        return first

    def _room(self, pool: Pool, size: int) -> Block | None:
        """Where so many bytes in a row are free or without memory, at the lowest addresses that have a hole."""
        block: Block | None = self._heads.get(pool)
        if block is None:
            block = self._heads[pool] = Block(self._next_address, ADDRESSES, pool, mapped=False)
            self._next_address += ADDRESSES
        while block is not None:
            if not block.mapped:
                first = block.before if block.before is not None and not block.before.used else block
                length = 0
                each: Block | None = first
                while length < size and each is not None and not each.used:
                    length += each.size
                    each = each.after
                if length >= size:
                    return first
            block = block.after
        return None

    def _release_for(self, pool: Pool, size: int) -> bool:
        """Gives back free segments, just enough of them for a request; only where large blocks are not split."""
        limit = self.settings.max_split_bytes
        if limit is None:
            return False
        entries = self._free.get(pool, [])
        wanted = max(size, limit)
        for _, _, block in entries[bisect_left(entries, (wanted,)) :]:
            if block.whole:
                self._give_back(block)
                return True
        released = 0
        for length, _, block in reversed(list(entries)):
            if length < limit or released >= wanted:
                break
            if block.whole:
                released += block.size
                self._give_back(block)
        return released >= wanted

    def _give_back(self, block: Block) -> None:
        """Returns a free block's memory to the driver, as far as it makes up whole segments or pages."""
        if self._expandable(block):
            self._unmap(block)
        elif block.whole:
            self._take(block)
            self.reserved -= block.size
            self.counts.device_frees += 1

    def _expandable(self, block: Block) -> bool:
        head = self._heads.get(block.pool)
        return head is not None and head.address <= block.address < head.address + ADDRESSES

    def _unmap(self, block: Block) -> None:
        """Takes the memory from a free block as far as it makes up whole pages; what is left at its ends stays free."""
        page, base = _page(block.pool), self._heads[block.pool].address
        start = base + -(-(block.address - base) // page) * page
        end = base + (block.address + block.size - base) // page * page
        if end <= start:
            return
        self._take(block)
        if start > block.address:
            rest = self._cut(block, start - block.address)
            self._put(block)
            block = rest
        if end < block.address + block.size:
            self._put(self._cut(block, end - block.address))
        block.mapped = False
        self.reserved -= block.size
        self.counts.device_frees += 1
        if block.after is not None and not block.after.mapped:
            self._joined(block, block.after)
        if block.before is not None and not block.before.mapped:
            self._joined(block.before, block)

    def _collect_garbage(self) -> None:
        """Above a share of the device, free segments of large requests are given back before growing, the oldest first.

        The age of a block is how many large requests there were since it became free. Those as old as the mean or older
        go, all of them, and again until it is enough.
        """
        threshold, capacity = self.settings.gc_threshold, self.capacity
        if threshold is None or capacity is None:
            return
        limit = int(threshold * capacity)
        left = [
            block
            for (_, small, owner), entries in self._free.items()
            if not small and not owner and self.reserved > limit
            for _, _, block in entries
            if block.whole
        ]
        while left and self.reserved > limit:
            mean = sum(block.since for block in left) / len(left)
            for block in left:
                if block.since <= mean:
                    self._give_back(block)
            left = [block for block in left if block.since > mean]


def _page(pool: Pool) -> int:
    """Bytes that an expandable segment maps and unmaps at once."""
    return SMALL_SEGMENT if pool[1] else LARGE_SEGMENT


def _order(entry: tuple[int, int, Block]) -> tuple[int, int]:
    return entry[0], entry[1]
