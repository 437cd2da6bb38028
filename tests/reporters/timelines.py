"""Profiles of one step for the timeline: a thread, a stream, idle time, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpudoctor.profile import Profile, frame, from_columns

STEP_NS = 10_000_000
LINE = {"file": "train.py", "line": 43}


def step(ops: Sequence[dict[str, Any]] = (), kernels: Sequence[dict[str, Any]] = (), **tables: Any) -> Profile:
    """A profile whose step 3 begins at 1 ms and takes 10."""
    rows = {
        "steps": [{"step": 3, "start_ns": 1_000_000, "dur_ns": STEP_NS, "observation": "light"}],
        "step_budget": [{"step": 3, "device": 0, "owner": "compute", "dur_ns": STEP_NS}],
        "ops": [{"step": 3, "thread": 1, "depth": 0, "dur_ns": 0, "observation": "light"} | row for row in ops],
        "kernels": [{"step": 3, "device": 0, "stream": 7, "kind": "kernel"} | row for row in kernels],
    } | tables
    return Profile({name: frame(name, found) for name, found in rows.items() if found})


def busy() -> Profile:
    """Two threads, a stream with a copy, a gap, and memory that grows."""
    return step(
        ops=[
            {"name": "aten::linear", "start_ns": 1_500_000, "dur_ns": 2_000_000, "phase": "forward", **LINE},
            {"name": "aten::addmm", "start_ns": 1_600_000, "dur_ns": 1_000_000, "depth": 1, "phase": "forward"},
            {"name": "AddmmBackward0", "start_ns": 5_000_000, "dur_ns": 3_000_000, "thread": 2, "phase": "backward"},
            {"name": "Optimizer.step#SGD", "start_ns": 9_000_000, "dur_ns": 1_500_000, "phase": "optimizer"},
        ],
        kernels=[
            {"name": "ampere_sgemm", "kernel_class": "gemm", "start_ns": 2_000_000, "dur_ns": 4_000_000, **LINE},
            {"name": "Memcpy HtoD", "kind": "memcpy", "start_ns": 7_000_000, "dur_ns": 500_000},
        ],
        gaps=[{"gap": 0, "device": 0, "step": 3, "start_ns": 6_000_000, "dur_ns": 1_000_000, "owner": "launch"}],
        memory_events=[
            {"step": 3, "device_kind": "gpu", "device": 0, "start_ns": 2_000_000 + 1000 * n, "allocated_bytes": n << 20}
            for n in range(50)
        ],
    )  # fmt: skip


def large(events: int) -> Profile:
    """A step with so many operators of 50 ns, one behind the other."""
    made = busy()
    start = 1_000_000 + np.arange(events, dtype=np.int64) * (STEP_NS // events)
    columns = {
        "op": np.arange(events),
        "start_ns": start,
        "dur_ns": 50 + np.arange(events, dtype=np.int64) % 40,
        "thread": np.ones(events, np.int64),
        "depth": np.zeros(events, np.int64),
        "step": np.full(events, 3, np.int64),
    }
    ops = from_columns("ops", columns)
    ops["name"] = [f"aten::op_{number % 300}" for number in range(events)]
    ops["phase"] = "forward"
    return Profile({**made.tables, "ops": ops})
