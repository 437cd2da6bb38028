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
    """

    address: int
    size: int
    pool: Pool
    used: bool = False
    before: Block | None = None
    after: Block | None = None
    mapped: bool = True

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
    _tails: dict[Pool, Block] = field(default_factory=dict)
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

    def empty_cache(self) -> None:
        """Gives back what can be given back."""
        for entries in list(self._free.values()):
            for _, _, block in list(entries):
                self._give_back(block)

    def _fitting(self, pool: Pool, size: int) -> Block | None:
        """The smallest free block that is large enough, of equals the one at the lowest address."""
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
        rest = Block(block.address + size, block.size - size, block.pool, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._put(rest)

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
        insort(self._free.setdefault(block.pool, []), (block.size, block.address, block), key=_order)

    def _take(self, block: Block) -> None:
        entries = self._free[block.pool]
        del entries[bisect_left(entries, (block.size, block.address), key=_order)]

    def _grown(self, pool: Pool, size: int) -> Block:
        """A block from the driver; where it has none left the cache is emptied first."""
        self._collect_garbage(size)
        block = self._from_driver(pool, size)
        if block is not None:
            return block
        self.counts.retries += 1
        if self._release_for(pool, size) and (block := self._from_driver(pool, size)) is not None:
            return block
        self.empty_cache()
        block = self._from_driver(pool, size)
        if block is None:
            self.counts.ooms += 1
            raise OutOfMemoryError
        return block

    def _from_driver(self, pool: Pool, size: int) -> Block | None:
        if self.settings.expandable and not pool[2]:
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
        """A block from an expandable segment: free memory and addresses without memory in a row, lowest first."""
        page = SMALL_SEGMENT if pool[1] else LARGE_SEGMENT
        start = self._room(pool, size)
        end = start.address + size
        missing: list[Block] = []
        block: Block | None = start
        while block is not None and block.address < end:
            if not block.mapped:
                missing.append(block)
            block = block.after
        needed = [
            min(hole.size, -(-(min(end, hole.address + hole.size) - hole.address) // page) * page) for hole in missing
        ]
        if self.capacity is not None and self.reserved + sum(needed) > self.capacity:
            return None
        block = start
        if block.mapped:
            self._take(block)
        for hole, length in zip(missing, needed, strict=True):
            self._map(hole, length)
            self.counts.device_allocs += 1
            if hole is not start:
                block = self._joined(block, hole)
        after = block.after
        while block.size < size and after is not None and after.mapped and not after.used:
            self._take(after)
            block = self._joined(block, after)
            after = block.after
        return block

    def _map(self, hole: Block, length: int) -> None:
        """Memory for the first bytes of addresses without."""
        if length < hole.size:
            rest = Block(
                hole.address + length, hole.size - length, hole.pool, before=hole, after=hole.after, mapped=False
            )
            if hole.after is not None:
                hole.after.before = rest
            elif self._tails.get(hole.pool) is hole:
                self._tails[hole.pool] = rest
            hole.after, hole.size = rest, length
        hole.mapped = True
        self.reserved += length

    @staticmethod
    def _joined(first: Block, second: Block) -> Block:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        return first

    def _room(self, pool: Pool, size: int) -> Block:
        """Where so many bytes in a row are free or without memory, at the lowest addresses that have a hole."""
        tail = self._tails.get(pool)
        if tail is None:
            tail = Block(self._next_address, 1 << 46, pool, mapped=False)
            self._next_address += 1 << 46
            self._tails[pool] = tail
        first: Block = tail
        holes = []
        block: Block | None = tail
        while block is not None:
            if not block.mapped:
                holes.append(block)
            block = block.before
        for hole in reversed(holes):
            first = hole.before if hole.before is not None and not hole.before.used else hole
            length, block = 0, first
            while length < size and block is not None and not block.used:
                length += block.size
                block = block.after
            if length >= size:
                return first
        return first

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
        if block is not None and self._tails.get(block.pool) is not None and not block.pool[2]:
            self._unmap(block)
        elif block.whole:
            self._take(block)
            self.reserved -= block.size
            self.counts.device_frees += 1

    def _unmap(self, block: Block) -> None:
        page = SMALL_SEGMENT if block.pool[1] else LARGE_SEGMENT
        base = self._base(block)
        start = base + -(-(block.address - base) // page) * page
        end = base + (block.address + block.size - base) // page * page
        if end <= start:
            return
        self._take(block)
        if start > block.address:
            rest = Block(start, block.address + block.size - start, block.pool, before=block, after=block.after)
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, start - block.address
            self._put(block)
            block = rest
        if end < block.address + block.size:
            rest = Block(end, block.address + block.size - end, block.pool, before=block, after=block.after)
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, end - block.address
            self._put(rest)
        block.mapped = False
        self.reserved -= block.size
        self.counts.device_frees += 1
        after = block.after
        if after is not None and not after.mapped:
            if self._tails.get(block.pool) is after:
                self._tails[block.pool] = block
            self._joined(block, after)
        before = block.before
        if before is not None and not before.mapped:
            if self._tails.get(block.pool) is block:
                self._tails[block.pool] = before
            self._joined(before, block)

    @staticmethod
    def _base(block: Block) -> int:
        while block.before is not None:
            block = block.before
        return block.address

    def _collect_garbage(self, size: int) -> None:
        """Above a share of the device, free segments that were not used for long are given back before growing.

        The allocator counts for each block how often another was taken since; the model gives back the largest first,
        as all wait equally long in a step that repeats.
        """
        threshold, capacity = self.settings.gc_threshold, self.capacity
        if threshold is None or capacity is None or self.reserved <= threshold * capacity:
            return
        wanted = self.reserved - int(threshold * capacity)
        for _, _, block in sorted(
            (entry for entries in self._free.values() for entry in entries), key=_order, reverse=True
        ):
            if wanted <= 0:
                return
            if block.whole and not block.pool[1]:
                wanted -= block.size
                self._give_back(block)


def _order(entry: tuple[int, int, Block]) -> tuple[int, int]:
    return entry[0], entry[1]
