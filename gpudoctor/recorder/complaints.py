"""Keeps two lines of torch's off the script's standard error.

Kineto wants its first session to be started by the thread that imported torch. It works in another one too, but says
"ERROR: External init callback must run in same thread" on file descriptor 2, whatever its log level. A session that
watches memory says "Memory block of unknown size was allocated before the profiling started" of the first block that it
sees freed and not made, and of each 1,000th (c10/core/CPUAllocator.cpp): a block of ours is the first.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_COMPLAINTS = (b"External init callback must run in same thread", b"Memory block of unknown size was allocated before")


@contextmanager
def held_back(memory: bool) -> Iterator[None]:
    """For the few milliseconds of a session's start: what else is written comes after it.

    Args:
        memory: the session watches memory; of others only those outside the main thread have anything to say.
    """
    if threading.current_thread() is threading.main_thread() and not memory:
        yield
        return
    with tempfile.TemporaryFile() as file:
        try:
            kept = os.dup(2)
        except OSError:  # standard error is closed: nothing can be said on it
            yield
            return
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            rest = b"".join(
                line for line in file.read().splitlines(keepends=True) if not any(one in line for one in _COMPLAINTS)
            )
            if rest:
                os.write(2, rest)
