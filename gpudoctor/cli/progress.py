"""One status line at the bottom of the terminal while a script runs.

The script writes to the terminal itself: it gets no pipe and no pseudo-terminal of ours, so nothing of it can be held
back or reordered, and it sees the terminal that it would see without us. Its cursor may stand anywhere, in the middle
of a line or of a progress bar. So the line is not drawn where the script writes: the terminal is told to scroll all
rows but the last (DECSTBM), as apt does, and the line goes into the last row, with the cursor saved before and put back
after, in one write.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from gpudoctor.recorder.status import Progress

REFRESH_S = 0.5  # two wake-ups a second: not measurable beside a training step
MIN_ROWS, MIN_COLUMNS = 5, 30
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[2K"
_RELEASE = f"{_SAVE}\x1b[r{_RESTORE}"  # setting the margins moves the cursor
_MAKE_ROOM = "\x1bD\x1b[A"  # down, scrolling where it must, and up again, in the same column


def display(quiet: bool, stream: TextIO | None = None) -> AbstractContextManager[StatusLine | None]:
    """The status line where it can be shown: on a terminal that is ours, not in CI, not when told to be quiet.

    Args:
        quiet: the user wants none.
        stream: where it goes; standard error if not given.
    """
    unwanted = quiet or os.environ.get("CI") or os.environ.get("TORCHELASTIC_RUN_ID")
    if unwanted or os.environ.get("TERM", "dumb") == "dumb":
        return nullcontext()
    try:
        terminal = (stream or sys.stderr).fileno()
        fits = os.isatty(terminal) and _fits(os.get_terminal_size(terminal))
    except (OSError, AttributeError, ValueError):
        return nullcontext()
    return StatusLine(terminal) if fits and hasattr(os, "tcgetpgrp") else nullcontext()


class StatusLine:
    """Keeps the last row of a terminal up to date, from a thread of its own.

    Args:
        terminal: its file descriptor.
    """

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._size: os.terminal_size | None = None
        self._look: Callable[[], str] = lambda: "starting"
        self._thread = threading.Thread(target=self._run, name="gpudoctor-progress", daemon=True)

    def __enter__(self) -> StatusLine:
        self._before = signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        self._clear()
        signal.signal(signal.SIGTSTP, self._before)

    def follow(self, recording: Path) -> None:
        """Shows how far a recording is."""
        from gpudoctor.recorder import status

        self._look = lambda: words(status.read(recording))
        if not self._thread.is_alive():
            self._thread.start()

    def show(self, text: str) -> None:
        """Shows a text from now on."""
        self._look = lambda: text
        self._draw()

    def _run(self) -> None:
        self._draw()
        while not self._end.wait(REFRESH_S):
            self._draw()

    def _draw(self) -> None:
        with self._lock, _nothing_to_show():
            if os.tcgetpgrp(self._terminal) != os.getpgrp():  # in the background: the terminal is somebody else's
                return
            size = os.get_terminal_size(self._terminal)
            if not _fits(size):
                return
            reserve = "" if size == self._size else self._reserve(size)
            self._size = size
            text = styled(f"gpudoctor  {self._look()}", size.columns - 1)
            self._write(f"{reserve}{_SAVE}\x1b[{size.lines};1H{_CLEAR}{text}{_RESTORE}")

    def _reserve(self, size: os.terminal_size) -> str:
        """Takes the last row out of what scrolls; the row that was last before a resize becomes an ordinary one."""
        old = self._size
        grown = old is not None and old.lines < size.lines
        erase = f"{_SAVE}\x1b[{old.lines};1H{_CLEAR}{_RESTORE}" if old is not None and grown else ""
        return f"{erase}{_RELEASE if old else ''}{_MAKE_ROOM}{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}"

    def _clear(self) -> None:
        with self._lock, _nothing_to_show():
            if self._size is not None:
                lines, self._size = self._size.lines, None
                self._write(f"{_RELEASE}{_SAVE}\x1b[{lines};1H{_CLEAR}{_RESTORE}")

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal back whole; the next look after `fg` draws again."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._clear()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _write(self, text: str) -> None:
        os.write(self._terminal, text.encode("utf-8", "replace"))


@contextmanager
def _nothing_to_show() -> Iterator[None]:
    with contextlib.suppress(OSError, ValueError):  # the terminal is gone
        yield


def _fits(size: os.terminal_size) -> bool:
    return size.lines >= MIN_ROWS and size.columns >= MIN_COLUMNS


def words(progress: Progress) -> str:
    """A look at the recorder in one line, what matters most first."""
    from gpudoctor.units import format_ns

    parts = [progress.phase]
    if progress.steps:
        parts.append(f"{progress.steps} step{'s' if progress.steps > 1 else ''}")
    if progress.step_ns is not None:
        parts.append(f"{format_ns(progress.step_ns)} each")
    if progress.budget_s is not None and progress.steps:
        parts.append(f"{min(progress.elapsed_s, progress.budget_s):.0f} of {progress.budget_s:.0f} s")
    return " · ".join(parts)


def styled(text: str, width: int) -> str:
    """The text at most so wide, dim where the terminal shows styles."""
    from rich.console import Console
    from rich.text import Text

    line = Text(text, style="dim", no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    buffer = io.StringIO()
    Console(file=buffer, force_terminal=True, width=width + 1, legacy_windows=False).print(line, end="")
    return buffer.getvalue()
