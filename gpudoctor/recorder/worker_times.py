"""How long loader workers take to make a batch, measured in the workers, in memory that they share with the loop.

Works for workers that are forked. Others (spawn, forkserver) do not inherit the memory: what they take is not measured.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import Any

LOADERS = 32  # loaders that are told apart; scripts have a handful
WORKERS = 128  # workers of one loader; more than the cores of most machines
_FIELDS = 3  # batches, wall time, CPU time
_BYTES = 8


class WorkerTimes:
    """A table of sums, one slot for each worker of each loader; a slot has one writer at a time.

    Attributes:
        loader: number of the loader whose workers are being started; workers inherit it.
    """

    def __init__(self) -> None:
        self.loader: int | None = None
        self._table: memoryview | None = None
        self._warm = False

    def start(self, loader: int, workers: int) -> None:
        """Called before a loader's workers are started."""
        self.loader = loader if workers and loader < LOADERS else None
        if self.loader is not None and self._table is None:
            self._table = memoryview(mmap.mmap(-1, LOADERS * WORKERS * _FIELDS * _BYTES)).cast("q")

    def timed(self, worker: int, fetch: Callable[[], Any]) -> Any:
        """Makes a batch in a worker; the first one (opens files, imports) does not count."""
        if self._table is None or self.loader is None or worker >= WORKERS:
            return fetch()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        batch = fetch()
        if self._warm:
            at = self._slot(self.loader, worker)
            self._table[at] += 1
            self._table[at + 1] += time.perf_counter_ns() - wall
            self._table[at + 2] += time.process_time_ns() - cpu
        self._warm = True
        return batch

    def sums(self, loader: int) -> tuple[int, int, int]:
        """Batches that a loader's workers made, and the wall and CPU nanoseconds that they took for them in all."""
        if self._table is None or loader >= LOADERS:
            return 0, 0, 0
        first, end = self._slot(loader, 0), self._slot(loader + 1, 0)
        return tuple(sum(self._table[first + field : end : _FIELDS]) for field in range(_FIELDS))  # type: ignore[return-value]

    @staticmethod
    def _slot(loader: int, worker: int) -> int:
        return (loader * WORKERS + worker) * _FIELDS
