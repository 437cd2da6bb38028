"""What a random program is like: drawn once a program, so that each bottleneck occurs."""

from __future__ import annotations

import random
from dataclasses import dataclass

US = 1_000
MS = 1_000_000

BOTTLENECKS = ("gpu", "queue", "launch", "sync", "loader", "copy", "communication", "mixed")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Medians and counts of a program; times in nanoseconds.

    Attributes:
        bottleneck: what it was drawn to be slow by.
        layers: of the model: two operators each in forward, three kernels each in backward.
        kernel_ns: a layer's kernel.
        python_ns, operator_ns, launch_ns, latency_ns, gap_ns, tail_ns: host before an operator and in it, launch
            call, launch to begin, between two kernels, from the end of what a call waits for to its return.
        spread: of the kernels' durations among layers (sigma of a log-normal).
        items: where `.item()` is called: shares of the forward; 1.5 is in front of the optimizer, 2 the step's end.
        item_pageable: its copy goes to pageable memory, and holds up the host itself.
        synchronize: the device is synchronised at the step's end.
        throttled: the host waits at the step's end for an event behind the forward, not to run ahead too far.
        zeroed: tensors of gradients that are filled with zeros.
        batch_bytes: copied to the device; 0 for none.
        pinned, blocking: the batch is in pinned memory; `.to()` waits for its copy.
        small_copies: pageable copies of less than 64 KiB, which the driver takes along.
        loader_ns: what a batch costs a DataLoader; 0 for none.
        workers: of that DataLoader; 0: the loop does it.
        small: kernels of the optimizer that could be one.
        graph: layers that are replayed as a graph instead of launched; 0 for none.
        buckets: of gradients that are reduced; 0 for none.
        overlapped: compute waits for the reductions at the end of backward, not at once.
        reduce_ns: a bucket on the link.
        late_ns: how late the last rank is, on average.
        branch: kernels of a second compute stream.
        frees: `cudaFree`s a step.
        mallocs: `cudaMalloc`s a step.
        malloc_waits: they wait for the device.
        sync_record: the profiler recorded synchronisations as the device saw them.
    """

    bottleneck: str
    layers: int
    kernel_ns: int
    python_ns: int = 8 * US
    operator_ns: int = 4 * US
    launch_ns: int = 5 * US
    latency_ns: int = 4 * US
    gap_ns: int = 1 * US
    tail_ns: int = 5 * US
    spread: float = 0.5
    items: tuple[float, ...] = ()
    item_pageable: bool = False
    synchronize: bool = False
    throttled: bool = False
    zeroed: int = 0
    batch_bytes: int = 0
    pinned: bool = False
    blocking: bool = True
    small_copies: int = 0
    loader_ns: int = 0
    workers: int = 0
    small: int = 0
    graph: int = 0
    buckets: int = 0
    overlapped: bool = True
    reduce_ns: int = 0
    late_ns: int = 0
    branch: int = 0
    frees: int = 0
    mallocs: int = 0
    malloc_waits: bool = True
    sync_record: bool = True


_MEDIANS: dict[str, tuple[tuple[int, int], tuple[int, int], tuple[int, int]]] = {
    "gpu": ((10, 60), (30 * US, 200 * US), (2 * US, 8 * US)),
    "queue": ((110, 155), (30 * US, 90 * US), (2 * US, 4 * US)),
    "launch": ((15, 90), (2 * US, 8 * US), (6 * US, 30 * US)),
    "sync": ((15, 60), (12 * US, 60 * US), (3 * US, 12 * US)),
    "loader": ((9, 50), (8 * US, 40 * US), (3 * US, 12 * US)),
    "copy": ((9, 50), (8 * US, 60 * US), (3 * US, 12 * US)),
    "communication": ((12, 60), (10 * US, 80 * US), (2 * US, 10 * US)),
    "mixed": ((10, 120), (4 * US, 80 * US), (2 * US, 25 * US)),
}
"""Ranges of layers, kernel_ns and python_ns."""


def _between(rng: random.Random, low: float, high: float) -> float:
    """Anything between two bounds, each magnitude as likely as the other."""
    return float(low * (high / low) ** rng.random())


def _whole(rng: random.Random, bounds: tuple[int, int]) -> int:
    return round(_between(rng, *bounds))


def draw(rng: random.Random) -> Recipe:
    """One recipe."""
    kind = rng.choice(BOTTLENECKS)
    layers, kernel_ns, python_ns = (_whole(rng, bounds) for bounds in _MEDIANS[kind])

    def likely(*kinds: str, otherwise: float = 0.25) -> bool:
        return kind in kinds or rng.random() < otherwise

    free_running = kind == "queue"  # nothing may hold the host up
    items = [rng.random() for _ in range(rng.choice((1, 3, 8)))] if likely("sync", otherwise=0.15) else []
    items += [place for place, share in ((1.5, 0.2), (2.0, 0.4)) if rng.random() < share]
    reduced = likely("communication", otherwise=0.2)
    compute_ns = 5 * layers * kernel_ns
    buckets = rng.choice((1, 2, 4, 6)) if reduced else 0
    share = _between(rng, 0.4, 2.0) if kind == "communication" else _between(rng, 0.1, 0.6)
    copied = likely("copy", otherwise=0.5)
    loads = likely("loader", otherwise=0.3)
    host_ns = 5 * layers * (python_ns + 10 * US)
    return Recipe(
        bottleneck=kind,
        layers=layers,
        kernel_ns=kernel_ns,
        python_ns=python_ns,
        operator_ns=_whole(rng, (2 * US, 8 * US)),
        launch_ns=_whole(rng, (3 * US, 7 * US)),
        latency_ns=_whole(rng, (2 * US, 9 * US)),
        gap_ns=_whole(rng, (700, 2 * US)),
        tail_ns=_whole(rng, (2 * US, 9 * US)),
        spread=rng.choice((0.3, 0.7, 1.1)),
        items=() if free_running else tuple(sorted(items)),
        item_pageable=rng.random() < 0.5,
        synchronize=rng.random() < 0.2 and not free_running,
        throttled=rng.random() < 0.15 and not free_running,
        zeroed=rng.choice((0, 0, 3, 20)),
        batch_bytes=_whole(rng, (20_000_000, 200_000_000) if kind == "copy" else (200_000, 20_000_000)) * copied,
        pinned=free_running or (rng.random() < 0.4 and kind != "copy"),
        blocking=not free_running and rng.random() < 0.6,
        small_copies=rng.choice((0, 0, 1, 4)),
        loader_ns=round(max(compute_ns, host_ns) * _between(rng, *((0.5, 3) if kind == "loader" else (0.01, 0.3))))
        * loads,
        workers=rng.choice((0, 0, 1, 2, 4)),
        small=0 if free_running else rng.choice((0, 0, 20, 60, 200)),
        graph=rng.choice((0, 0, 0, layers // 3)),
        buckets=buckets,
        overlapped=rng.random() < 0.4,
        reduce_ns=round(share * compute_ns / max(1, buckets)),
        late_ns=rng.choice((0, 100 * US, 1 * MS)),
        branch=rng.choice((0, 0, 0, 4, 15)),
        frees=rng.choice((0, 0, 0, 0, 1)) * (not free_running),
        mallocs=rng.choice((0, 0, 0, 1, 2)) * (not free_running),
        malloc_waits=rng.random() < 0.5,
        sync_record=rng.random() < 0.5,
    )
