"""Files that the script holds open for writing: when the run may be stopped without cutting one off.

A log or CSV stays open for the whole training; its rows are whole at a step's end once Python's buffers are flushed. A
checkpoint is open for a moment, or, written by a thread in the background, for some seconds in which it grows fast.
So the stop waits while any file is new since the last look or grows fast, and flushes what is left.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import stat
from collections.abc import Callable

GRACE_S = 2.0  # a file that was open all that time is a log, or a writer slow enough to show its growth
MAX_GROWTH_BYTES = 1 << 20  # between two looks: more is no log but somebody writing a checkpoint
_WRITABLE = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


class OpenFiles:
    """Watches open files from boundary to boundary, once a stop is wanted.

    Args:
        ours: whether a file descriptor belongs to the recorder.
    """

    def __init__(self, ours: Callable[[int], bool]) -> None:
        self._ours = ours
        self._seen: dict[tuple[int, int], int] | None = None
        self._since_s = 0.0

    def quiet(self, now_s: float) -> bool:
        """Whether nothing would be cut off by stopping now. Call it at step boundaries."""
        sizes = self.writing()
        before, self._seen = self._seen, sizes
        if not sizes:
            return True
        if before is None:
            self._since_s = now_s
            return False
        new = sizes.keys() - before.keys()
        fast = any(size - before[key] > MAX_GROWTH_BYTES for key, size in sizes.items() if key in before)
        if new or fast:
            self._since_s = now_s
        return now_s - self._since_s >= GRACE_S

    def writing(self) -> dict[tuple[int, int], int]:
        """Size in bytes of each regular file open for writing, by device and inode; empty where /proc is missing.

        Standard streams, the recorder's own files and deleted files (temporary by nature) are left out.
        """
        sizes: dict[tuple[int, int], int] = {}
        try:
            descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
        except OSError:
            return sizes
        for descriptor in descriptors:
            if descriptor <= 2 or self._ours(descriptor):
                continue
            with contextlib.suppress(OSError):  # closed meanwhile
                state = os.fstat(descriptor)
                if stat.S_ISREG(state.st_mode) and state.st_nlink and _is_writable(descriptor):
                    name = os.readlink(f"/proc/self/fd/{descriptor}")
                    if not name.startswith(("/dev/", "/memfd:")):
                        sizes[state.st_dev, state.st_ino] = state.st_size
        return sizes


def _is_writable(descriptor: int) -> bool:
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
        flags = next((int(line.split()[1], 8) for line in info if line.startswith("flags:")), 0)
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def flush_python_files() -> None:
    """Writes out the buffers of every Python file object: what the script has written stands on disk."""
    for thing in gc.get_objects():
        # type(), not isinstance: the latter runs the `__class__` of proxies
        if type(thing) in _WRITABLE:
            with contextlib.suppress(Exception):  # closed, broken or read-only: nothing to write
                thing.flush()
