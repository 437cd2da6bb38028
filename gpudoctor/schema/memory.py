"""Tables: what the CUDA caching allocator held, who asked for it, and what keeps it."""

from __future__ import annotations

from gpudoctor.columns import Kind
from gpudoctor.schema.declare import Table, table

SNAPSHOT = (
    "run `gpudoctor check` on a machine with a GPU, or give `gpudoctor analyze --memory` a file that "
    "`torch.cuda.memory._dump_snapshot` wrote"
)
HISTORY = (
    "call `torch.cuda.memory._record_memory_history()` before the step and `_dump_snapshot(path)` after it, then run "
    "`gpudoctor analyze --memory path`"
)

_PLACE: tuple[tuple[str, Kind, str], ...] = (
    ("file", "str", "user's source file that asked for it; null where no call of the user's is known"),
    ("line", "int", "user's source line"),
    ("function", "str", "user's function"),
    (
        "category",
        "str",
        "parameters, gradients, optimizer state, activations, inputs, temporaries, workspaces, other",
    ),
    ("inferred", "bool", "the category follows from stacks and lifetimes, not from the run's own objects"),
)


TABLES: tuple[Table, ...] = (
    table(
        "allocator",
        "one GPU's caching allocator at the end of the recorded history",
        SNAPSHOT,
        ("device", "int", "GPU index"),
        ("reserved_bytes", "int", "memory that it holds from the driver"),
        ("allocated_bytes", "int", "in blocks that tensors hold"),
        ("active_bytes", "int", "the same and blocks that a stream may still use"),
        ("cached_bytes", "int", "in segments that are free as a whole: empty_cache() would give them back"),
        ("inactive_split_bytes", "int", "free, in segments that something alive keeps: nothing gives it back"),
        ("largest_free_bytes", "int", "largest free block"),
        ("segments", "int", "pieces of memory from the driver"),
        ("small_reserved_bytes", "int", "of the reserved memory, in the pool of requests up to 1 MiB"),
        ("peak_bytes", "int", "most that was allocated at once while the history was recorded"),
        ("peak_ns", "int", "when that was, from the history's first entry; null when it was before"),
        ("entries", "int", "entries of the history; 0: none was recorded"),
        ("segment_allocs", "int", "memory requests to the driver in the history; null where it has no such entries"),
        ("segment_frees", "int", "memory given back to the driver in the history; null likewise"),
        ("ooms", "int", "out-of-memory errors in the history"),
        ("oom_bytes", "int", "bytes that the last request which failed asked for"),
        ("oom_device_free_bytes", "int", "memory that the driver had left when it failed"),
        ("oom_reserved_bytes", "int", "memory that the allocator held when it failed"),
        ("oom_allocated_bytes", "int", "memory that tensors held when it failed"),
        ("oom_file", "str", "user's file whose request failed"),
        ("oom_line", "int", "user's line whose request failed"),
        ("oom_function", "str", "user's function whose request failed"),
        ("capacity_bytes", "int", "the device's memory, where known"),
        ("expandable_segments", "bool", "expandable_segments setting"),
        ("max_split_bytes", "int", "max_split_size_mb setting; null for no limit"),
        ("gc_threshold", "float", "garbage_collection_threshold setting"),
    ),
    table(
        "segments",
        "one piece of memory that the caching allocator holds from the driver",
        SNAPSHOT,
        ("segment", "int", "id"),
        ("device", "int", "GPU index"),
        ("address", "int", "first byte"),
        ("total_bytes", "int", "its size"),
        ("live_bytes", "int", "in blocks that tensors hold"),
        ("pending_bytes", "int", "released, in blocks that another stream may still use"),
        ("free_bytes", "int", "in free blocks"),
        ("largest_free_bytes", "int", "largest free block"),
        ("live_blocks", "int", "blocks that tensors hold"),
        ("stream", "int", "stream it belongs to"),
        ("pool", "str", "small (requests up to 1 MiB) or large"),
        ("private_pool", "bool", "belongs to a pool of its own, as a CUDA graph's does"),
        ("expandable", "bool", "grows in place (expandable_segments)"),
        *_PLACE,
    ),
    table(
        "blocks",
        "one block of a segment",
        SNAPSHOT,
        ("block", "int", "id"),
        ("segment", "int", "segment it is a part of"),
        ("device", "int", "GPU index"),
        ("address", "int", "first byte"),
        ("bytes", "int", "its size"),
        ("requested_bytes", "int", "what was asked for, before rounding"),
        ("state", "str", "active_allocated, active_pending_free or inactive"),
        *_PLACE,
    ),
    table(
        "allocations",
        "one allocation that the recorded history saw, or that was alive at its end",
        HISTORY,
        ("allocation", "int", "id"),
        ("device", "int", "GPU index"),
        ("address", "int", "first byte"),
        ("bytes", "int", "what it takes, rounded up to 512 bytes"),
        ("requested_bytes", "int", "what was asked for"),
        ("stream", "int", "stream it belongs to"),
        ("start_ns", "int", "when it was made, from the history's first entry; null: before"),
        ("release_ns", "int", "when it was given back; null: never"),
        ("end_ns", "int", "when its memory could be used again; null: never"),
        ("at_peak", "bool", "alive when most was allocated"),
        *_PLACE,
    ),
    table(
        "memory_curve",
        "memory in use on a device at one moment of the recorded history (at most 2,000 a device)",
        HISTORY,
        ("device", "int", "GPU index"),
        ("time_ns", "int", "when, from the history's first entry"),
        ("allocated_bytes", "int", "in use then: the most since the row before"),
    ),
    table(
        "memory_peak",
        "what one line of the user's held when most was allocated; without a history, when the snapshot was taken",
        SNAPSHOT,
        ("device", "int", "GPU index"),
        *_PLACE,
        ("bytes", "int", "bytes it held"),
        ("allocations", "int", "in so many allocations"),
        ("share", "float", "of the peak, 0 to 1"),
        ("without_bytes", "int", "the peak if the line allocated nothing; null for all but the largest ten"),
    ),
    table(
        "fragmentation",
        "what one line of the user's keeps: free memory in segments of which it holds the most",
        SNAPSHOT,
        ("device", "int", "GPU index"),
        *_PLACE,
        ("segments", "int", "segments that it keeps"),
        ("total_bytes", "int", "their size"),
        ("held_bytes", "int", "what it holds in them"),
        ("free_bytes", "int", "what is free in them and cannot be given back"),
        ("largest_free_bytes", "int", "largest free block in them"),
    ),
    table(
        "allocator_replays",
        "what a model of the caching allocator says of the recorded allocations under some settings",
        HISTORY,
        ("device", "int", "GPU index"),
        ("setting", "str", "as PYTORCH_CUDA_ALLOC_CONF takes it; empty: the recorded settings"),
        ("peak_reserved_bytes", "int", "most that would be reserved at once"),
        ("reserved_bytes", "int", "reserved at the end"),
        ("retries", "int", "allocations for which the cache would be emptied first; null as `ooms`"),
        ("ooms", "int", "requests that would fail; null where the device's memory is not known"),
    ),
)
