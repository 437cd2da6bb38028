"""The functions and methods by which scripts read a clock, as sources call them."""

from __future__ import annotations

CLOCKS = frozenset(
    {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "default_timer"}
    | {"elapsed_time", "clock"}
)
"""Of the modules time and timeit, and of CUDA events; without what stands before their last dot."""
