"""Ending the user's process without harm: flush, end worker processes, leave at once.

`os._exit` skips `finally` blocks and atexit handlers on purpose: a `finally` that saves a checkpoint would overwrite a
good one with a half-trained model. The run is only ended where no regular file is open for writing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

_really_exit = os._exit


def before_hard_exit(function: Callable[[], None]) -> None:
    """Calls `function` before the script leaves through `os._exit`, in this process only."""
    pid = os.getpid()

    def _exit(status: int) -> Any:
        if os.getpid() == pid:
            function()
        _really_exit(status)

    os._exit = _exit


def leave() -> None:
    """Flushes, ends worker processes, and ends this one with exit code 0."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # a closed or replaced stream has nothing to flush
            continue
    for child in multiprocessing.active_children():
        child.terminate()
    release = getattr(multiprocessing.util, "_run_finalizers", None)
    if release is not None:  # unlinks semaphores, or the resource tracker complains of leaks
        with contextlib.suppress(Exception):
            release(0)
    _really_exit(0)


def files_open_for_writing(ours: Callable[[int], bool]) -> list[str]:
    """Names of regular files that this process holds open for writing, standard streams and our own left out.

    Log files opened in append mode are left out too: stopping between two lines loses nothing.
    Returns an empty list where /proc is missing.
    """
    names = []
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return []
    for descriptor in descriptors:
        if descriptor <= 2 or ours(descriptor):
            continue
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                continue
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
                flags = next((int(line.split()[1], 8) for line in info if line.startswith("flags:")), 0)
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        writing = flags & (os.O_WRONLY | os.O_RDWR) and not flags & os.O_APPEND
        if writing and not name.endswith(" (deleted)") and not name.startswith(("/dev/", "/memfd:")):
            names.append(name)
    return names
