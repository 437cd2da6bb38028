"""Ending the user's process without harm: flush, end worker processes, leave at once.

`os._exit` skips `finally` blocks and atexit handlers on purpose: a `finally` that saves a checkpoint would overwrite a
good one with a half-trained model. When to end it is decided in `open_files`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import sys
from collections.abc import Callable
from typing import Any

from gpudoctor.recorder.open_files import flush_python_files

really_exit = os._exit
"""`os._exit` as it was before the recorder or anybody else replaced it."""


def before_hard_exit(function: Callable[[], None]) -> None:
    """Calls `function` before this process, or one it forks, leaves through `os._exit`."""

    def _exit(status: int) -> Any:
        function()
        really_exit(status)

    os._exit = _exit


def leave(last: Callable[[], None] = lambda: None) -> None:
    """Flushes, ends worker processes, and ends this one with exit code 0.

    Args:
        last: called when all that is done; what it raises is nobody's concern any more.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a closed or replaced stream has nothing to flush
            stream.flush()
    flush_python_files()
    for child in multiprocessing.active_children():
        child.terminate()
    release = getattr(multiprocessing.util, "_run_finalizers", None)
    if release is not None:  # unlinks semaphores, or the resource tracker complains of leaks
        with contextlib.suppress(Exception):
            release(0)
    with contextlib.suppress(BaseException):
        last()
    really_exit(0)
