"""Keeps a line of Kineto's off the script's standard error.

Kineto wants its first session to be started by the thread that imported torch. It works in another one too, but says
"ERROR: External init callback must run in same thread" on file descriptor 2, whatever its log level.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_COMPLAINT = b"External init callback must run in same thread"


@contextmanager
def held_back() -> Iterator[None]:
    """For the few milliseconds of a session's start outside the main thread: what else is written comes after it."""
    if threading.current_thread() is threading.main_thread():
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
            rest = b"".join(line for line in file.read().splitlines(keepends=True) if _COMPLAINT not in line)
            if rest:
                os.write(2, rest)
