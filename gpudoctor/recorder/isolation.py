"""Keeps the user's world as it is while code of theirs runs once more, in a process that is about to end.

Nothing printed, logged or written reaches anybody: standard streams go nowhere, log handlers are taken off, and opening
a file for writing, changing the file system, starting a process or connecting a socket raises PermissionError. What
cannot be held back: writes to a file or socket that is open already, and files that C++ code opens by itself.

None of it can be undone. The process must leave through `os._exit` afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudoctor.recorder.what_if_result import SCRATCH_PREFIX

GRACE_S = 5  # for the watchdog's thread to get the interpreter's lock; after that the kernel ends the process
_CHANGES = (
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown"),
    *("os.utime", "os.setxattr", "os.removexattr", "shutil.move", "shutil.rmtree", "sqlite3.connect"),
)
_ACTIONS = (
    *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("socket.connect", "socket.sendto", "socket.sendmsg", "os.kill", "os.killpg"),
)

_cleaning = threading.local()
"""`now` is true in a thread in which gpudoctor itself tidies up."""


def mute() -> None:
    """Sends what is printed and logged from here on to nobody."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.filters.clear()
    logging.lastResort = None


def scratch() -> Path:
    """A temporary folder for what compiling writes; torch's caches go there, not into the user's."""
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    sys.dont_write_bytecode = True
    return folder


def freeze(allowed: tuple[Path, ...], programs: bool) -> None:
    """Refuses changes outside the allowed folders.

    Args:
        allowed: folders in which everything may be done.
        programs: programs may be started (compilers).
    """
    inside = tuple(os.path.join(os.path.realpath(folder), "") for folder in allowed)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if getattr(_cleaning, "now", False):
            return
        if event == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & writing or isinstance(path, int):
                return
        elif event in _CHANGES:
            path = args[0]
        elif event in _ACTIONS and not (programs and event != "socket.connect"):
            raise PermissionError(f"the what-if lets nothing be changed ({event})")
        else:
            return
        name = path if isinstance(path, int) else os.path.realpath(os.fsdecode(path))
        if name != os.devnull and not str(name).startswith(inside):
            raise PermissionError(f"the what-if lets nothing be changed ({event} of {name})")

    sys.addaudithook(refuse)


def remove(folder: Path) -> None:
    """Removes the scratch folder."""
    _cleaning.now = True
    shutil.rmtree(folder, ignore_errors=True)
    _cleaning.now = False


def default_signals() -> None:
    """Ctrl-C, SIGTERM and alarms end the process at once: handlers of the user's shall not run half way out."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        with contextlib.suppress(ValueError, OSError):
            signal.signal(number, signal.SIG_DFL)


def bound(limit_s: float, at_limit: Callable[[], None], leave: Callable[[int], Any], folder: Path) -> None:
    """Ends the process after so many seconds.

    Args:
        limit_s: the bound.
        at_limit: called then; it must not wait for anything.
        leave: `os._exit` as it was before anybody replaced it.
        folder: the scratch folder, which goes too.
    """

    def watch() -> None:
        never.wait(limit_s)
        with contextlib.suppress(Exception):
            at_limit()
        with contextlib.suppress(Exception):
            remove(folder)
        leave(0)

    never = threading.Event()
    threading.Thread(target=watch, name="gpudoctor-what-if", daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)
