"""The model of the caching allocator on sequences whose outcome follows from how they are built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.analysis.allocator.model import Allocator, Block, OutOfMemoryError
from gpudoctor.analysis.allocator.replay import Event, Outcome, replay
from gpudoctor.analysis.allocator.settings import AllocatorSettings, parse, recorded

MIB = 1 << 20
DEFAULT = AllocatorSettings()


def outcome(events: Iterable[Event], text: str = "", capacity: int | None = None) -> Outcome:
    return replay(events, parse(text), capacity_bytes=capacity)


def interleaved(count: int, small: int, large: int) -> Iterator[Event]:
    """Blocks that live long between blocks that go: what fragments memory."""
    for number in range(count):
        yield Event("alloc", 2 * number, large)
        yield Event("alloc", 2 * number + 1, small)
    for number in range(count):
        yield Event("free", 2 * number)


@pytest.mark.parametrize(
    ("request_bytes", "reserved"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (100 * MIB + 1, 102 * MIB),
    ],
)
def test_a_first_request_gets_the_segment_of_its_size(request_bytes: int, reserved: int) -> None:
    made = outcome([Event("alloc", 0, request_bytes)])
    assert (made.reserved_bytes, made.device_allocs) == (reserved, 1)


def test_small_requests_share_segments_and_large_ones_share_others() -> None:
    events = [Event("alloc", number, 512 * 1024) for number in range(8)]
    events += [Event("alloc", 8 + number, 5 * MIB) for number in range(8)]
    assert outcome(events).reserved_bytes == 2 * 2 * MIB + 2 * 20 * MIB


def test_a_rest_of_up_to_one_mebibyte_stays_with_its_block() -> None:
    made = outcome([Event("alloc", 0, 19 * MIB)])
    assert (made.reserved_bytes, made.allocated_bytes) == (20 * MIB, 20 * MIB)
    made = outcome([Event("alloc", 0, 9 * MIB)])
    assert (made.reserved_bytes, made.allocated_bytes, made.largest_free_bytes) == (20 * MIB, 9 * MIB, 11 * MIB)


def test_long_lived_blocks_keep_segments_that_larger_requests_cannot_use() -> None:
    events = [*interleaved(10, 2 * MIB, 8 * MIB), Event("alloc", 100, 40 * MIB)]
    made = outcome(events)
    # ten pairs of 8 and 2 MiB fill five segments of 20 MiB; the freed 80 MiB lie in pieces of 8
    assert (made.reserved_bytes, made.allocated_bytes) == (5 * 20 * MIB + 40 * MIB, 10 * 2 * MIB + 40 * MIB)
    assert (made.inactive_split_bytes, made.largest_free_bytes) == (80 * MIB, 8 * MIB)


def test_expandable_segments_give_a_hole_back_only_where_neighbours_are_free() -> None:
    events = [Event("alloc", number, 30 * MIB) for number in range(4)] + [Event("free", 1), Event("free", 2)]
    events.append(Event("alloc", 9, 60 * MIB))
    assert outcome(events).reserved_bytes == 4 * 30 * MIB + 60 * MIB  # two holes of 30, of different segments
    assert outcome(events, "expandable_segments:True").reserved_bytes == 120 * MIB  # one hole of 60


def test_expandable_segments_map_whole_pages() -> None:
    made = outcome([Event("alloc", 0, 3 * MIB)], "expandable_segments:True")
    assert made.reserved_bytes == 20 * MIB
    made = outcome([Event("alloc", 0, 3 * MIB), Event("alloc", 1, 18 * MIB)], "expandable_segments:True")
    assert made.reserved_bytes == 40 * MIB


def expandable_with_a_hole() -> tuple[Allocator, Block]:
    """20 MiB of addresses without memory, 10 MiB free, 30 MiB in use (the block returned), in pages of 20 MiB."""
    allocator = Allocator(parse("expandable_segments:True"))
    first, second = allocator.allocate(30 * MIB), allocator.allocate(30 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert (allocator.reserved, [block.size for block in allocator.free_blocks()]) == (40 * MIB, [10 * MIB])
    return allocator, second


def test_a_request_goes_over_a_hole_free_memory_and_the_end_of_an_expandable_segment() -> None:
    allocator, second = expandable_with_a_hole()
    start = second.address - 30 * MIB
    allocator.free(second)
    block = allocator.allocate(70 * MIB)  # 20 of the hole, 40 that are free, 10 of the page behind
    assert (block.address, block.size, allocator.reserved) == (start, 70 * MIB, 80 * MIB)
    assert [(free.address, free.size) for free in allocator.free_blocks()] == [(start + 70 * MIB, 10 * MIB)]


def test_a_page_that_fills_a_hole_becomes_one_with_the_free_memory_behind_it() -> None:
    allocator, second = expandable_with_a_hole()
    blocks = [allocator.allocate(15 * MIB), allocator.allocate(15 * MIB)]
    assert [second.address - block.address for block in blocks] == [30 * MIB, 15 * MIB]
    assert (allocator.reserved, allocator.free_blocks()) == (60 * MIB, [])


def test_a_request_beyond_all_addresses_fails_and_leaves_the_rest_in_order() -> None:
    made = outcome([Event("alloc", 0, 1 << 60), Event("alloc", 1, 5 * MIB)], "expandable_segments:True")
    assert (made.ooms, made.allocated_bytes, made.reserved_bytes) == (1, 5 * MIB, 20 * MIB)


def test_expandable_segments_have_no_inactive_splits() -> None:
    events = [Event("alloc", 0, 9 * MIB)]
    assert outcome(events).inactive_split_bytes == 11 * MIB
    assert outcome(events, "expandable_segments:True").inactive_split_bytes == 0


def test_memory_pools_keep_their_memory_and_share_it_with_nobody() -> None:
    events = [Event("alloc", 0, 30 * MIB, pool=1), Event("free", 0), Event("alloc", 1, 30 * MIB), Event("free", 1)]
    for text, page in (("", 30 * MIB), ("expandable_segments:True", 40 * MIB)):
        assert outcome(events, text).reserved_bytes == 2 * page
        assert outcome([*events, Event("empty_cache")], text).reserved_bytes == page


def test_max_split_size_keeps_large_blocks_whole() -> None:
    events = [Event("alloc", 0, 200 * MIB), Event("free", 0), Event("alloc", 1, 30 * MIB), Event("alloc", 2, 200 * MIB)]
    assert outcome(events).reserved_bytes == 400 * MIB  # the 30 MiB split the large block
    assert outcome(events, "max_split_size_mb:100").reserved_bytes == 230 * MIB


def test_rounding_to_divisions_lets_sizes_that_differ_a_little_share_a_block() -> None:
    sizes = [33 * MIB, 35 * MIB, 37 * MIB, 39 * MIB]
    events = [one for key, size in enumerate(sizes) for one in (Event("alloc", key, size), Event("free", key))]
    assert outcome(events).reserved_bytes == sum(-(-size // (2 * MIB)) * 2 * MIB for size in sizes)
    assert outcome(events, "roundup_power2_divisions:4").reserved_bytes == 40 * MIB


@pytest.mark.parametrize(
    ("size", "divisions", "rounded"),
    [
        (1200, 4, 1536),
        (1200, 1, 1536),
        (4096, 4, 4096),
        (5000, 8, 5120),
        (300, 8, 512),
        (MIB + 1, 4, MIB + MIB // 4),
    ],
)
def test_sizes_round_as_torch_documents_it(size: int, divisions: int, rounded: int) -> None:
    assert parse(f"roundup_power2_divisions:{divisions}").rounded(size) == rounded


def test_streams_do_not_share_blocks() -> None:
    events = [Event("alloc", 0, 30 * MIB, stream=1), Event("free", 0), Event("alloc", 1, 30 * MIB, stream=2)]
    assert outcome(events).reserved_bytes == 60 * MIB


def test_a_full_device_gives_the_cache_back_before_it_fails() -> None:
    events = [Event("alloc", 0, 60 * MIB), Event("free", 0), Event("alloc", 1, 80 * MIB)]
    made = outcome(events, capacity=100 * MIB)
    assert (made.retries, made.ooms, made.reserved_bytes, made.device_frees) == (1, 0, 80 * MIB, 1)
    made = outcome([*interleaved(5, 2 * MIB, 8 * MIB), Event("alloc", 99, 41 * MIB)], capacity=100 * MIB)
    assert (made.ooms, made.allocated_bytes) == (1, 10 * MIB)


def test_a_large_block_that_makes_room_for_a_request_is_no_retry() -> None:
    events = [Event("alloc", 0, 90 * MIB), Event("free", 0), Event("alloc", 1, 40 * MIB)]
    made = outcome(events, "max_split_size_mb:30", capacity=100 * MIB)
    assert (made.retries, made.device_frees, made.reserved_bytes) == (0, 1, 40 * MIB)


def test_the_segments_that_wait_longest_go_first_not_the_largest() -> None:
    old, young = [Event("alloc", 0, 20 * MIB), Event("alloc", 1, 40 * MIB), Event("free", 0)], [Event("free", 1)]
    reuse = [Event("alloc", 2, 40 * MIB), Event("free", 2)]
    events = [*old, *young, *reuse, Event("alloc", 3, 62 * MIB)]
    made = outcome(events, "garbage_collection_threshold:0.1", 400 * MIB)
    assert made.reserved_bytes == (40 + 62) * MIB  # 60 were reserved: 20 above the threshold


def test_unused_segments_go_once_the_device_is_fuller_than_the_threshold() -> None:
    events = [
        Event("alloc", 0, 60 * MIB),
        Event("free", 0),
        Event("alloc", 1, 20 * MIB, stream=3),
        Event("alloc", 2, 62 * MIB),
    ]
    assert outcome(events, capacity=200 * MIB).reserved_bytes == 142 * MIB
    assert outcome(events, "garbage_collection_threshold:0.3", 200 * MIB).reserved_bytes == 82 * MIB


def test_a_release_that_nobody_began_is_counted() -> None:
    assert outcome([Event("free", 7)]).unknown_frees == 1


def test_settings_are_read_from_their_text_and_from_a_snapshot() -> None:
    text = "backend:native, max_split_size_mb:512,expandable_segments:True,"
    text += "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
    made = parse(text)
    assert (made.max_split_bytes, made.expandable, made.gc_threshold) == (512 * MIB, True, None)
    assert made.divisions == (1,) * 9 + (2, 4) + (8,) * 5
    default = {"max_split_size": -1, "garbage_collection_threshold": 0.0, "roundup_power2_divisions": {"1": 0, "2": 0}}
    assert recorded(default) == DEFAULT == recorded({}) == parse("")


@pytest.mark.parametrize(
    ("text", "divisions"),
    [
        ("[64:8,128:2,256:4,512:2,1024:4,>:1]", (8,) * 7 + (2, 4, 2, 4) + (1,) * 5),
        ("[256:1,1024:4]", (1,) * 9 + (0, 4) + (0,) * 5),
        ("[256:1,1024:4,>:8]", (1,) * 9 + (0, 4) + (8,) * 5),
        ("[512:2,4:8]", (2, 2, 8) + (2,) * 7 + (0,) * 6),
        ("[>:8]", (0,) + (8,) * 15),
        ("[65536:4]", (4,) * 16),
    ],
)
def test_divisions_by_size_are_those_that_torch_reads(text: str, divisions: tuple[int, ...]) -> None:
    assert parse(f"roundup_power2_divisions:{text}").divisions == divisions  # as libc10 of torch 2.13 answers


SEQUENCES = st.lists(
    st.tuples(st.sampled_from([300, 5000, MIB, 3 * MIB, 11 * MIB, 40 * MIB]), st.integers(0, 1), st.integers(0, 30)),
    max_size=60,
)


@given(
    SEQUENCES, st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:30", "roundup_power2_divisions:8"])
)
def test_bytes_are_conserved_and_blocks_never_overlap(steps: list[tuple[int, int, int]], text: str) -> None:
    allocator = Allocator(parse(text), capacity=200 * MIB)
    live: list[Block] = []
    for size, stream, pick in steps:
        if pick % 3 == 0 and live:
            allocator.free(live.pop(pick % len(live)))
        elif pick % 5 == 4:
            allocator.empty_cache()
        else:
            try:
                live.append(allocator.allocate(size, stream))
                assert live[-1].size >= size
            except OutOfMemoryError:
                allocator.empty_cache()
        free = allocator.free_blocks()
        assert allocator.allocated == sum(block.size for block in live)
        assert allocator.reserved == allocator.allocated + sum(block.size for block in free) <= 200 * MIB
        places = sorted((block.address, block.size) for block in (*live, *free))
        assert all(a + size <= b for (a, size), (b, _) in pairwise(places))
        for block in free:
            assert block.after is None or block.after.used or not block.after.mapped
            assert block.after is None or block.address + block.size == block.after.address
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (0, 0)
