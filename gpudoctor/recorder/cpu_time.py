"""How long a thread computed or wanted to: what it waits for otherwise is a disk, a network, another thread."""

from __future__ import annotations

import os
import time

_SCHEDULER = "/proc/thread-self/schedstat"
"""Linux: nanoseconds on a CPU, nanoseconds runnable without one, time slices (Documentation/scheduler/sched-stats)."""

_MAIN_THREAD = "/proc/self/schedstat"
"""The same of the thread that the process began with, whichever thread reads it."""


def wanted_ns() -> int:
    """CPU time of the calling thread and, where the system tells, the time for which it was ready but had no CPU.

    On a busy machine a thread that computes gets half of a CPU; by its CPU time alone it would seem to wait for a disk.
    Costs 6 µs.
    """
    return time.thread_time_ns() + _delayed_ns()


def main_thread_ns() -> tuple[int, int] | None:
    """CPU time of the process's main thread, and the time for which it was ready but had no CPU; None where unknown.

    A limit on the container's CPU time counts as the second, waiting for a disk, a lock or a child as neither.
    """
    return _read(_MAIN_THREAD)


def _delayed_ns() -> int:
    read = _read(_SCHEDULER)
    return read[1] if read is not None else 0


def _read(path: str) -> tuple[int, int] | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        cells = os.read(file, 128).split()
        return int(cells[0]), int(cells[1])
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(file)
