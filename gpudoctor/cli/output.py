"""Writes to the standard streams when they may have no reader, no room, or not be open at all."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gpudoctor.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output, for a block that writes to it; flushed at its end.

    A reader that has gone (`| head`) is no error: the rest goes nowhere, and the exit code is what it would have been.

    Raises:
        UsageError: what was written cannot be kept, e.g. on a full disk.
    """
    stream = sys.stdout
    try:
        yield stream
        stream.flush()
    except BrokenPipeError:
        discard(stream)
    except OSError as error:
        discard(stream)
        raise UsageError(f"standard output cannot be written ({error.strerror or error})") from None


def write_whole(path: Path, text: str, what: str) -> None:
    """Writes a file whole or not at all: beside its place first, then put there.

    Args:
        path: where; folders are made.
        text: what, written as UTF-8.
        what: what it is to the user, for the error.

    Raises:
        UsageError: it cannot be written there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise UsageError(f"{path}: {what} cannot be written ({error.strerror or error})") from None


def text_width(most: int) -> int | None:
    """Columns for text on standard output: `COLUMNS` where it is set, else the terminal's up to `most`.

    None for a pipe or a file, whose reader wants whole lines.
    """
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return min(most, shutil.get_terminal_size((most, 24)).columns) if sys.stdout.isatty() else None


def print_rich(shown: RenderableType, width: int) -> None:
    """Prints something of rich's at a width; only a terminal gets styles, and nothing gets blanks at a line's end."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(width=width).print(shown)
        return
    buffer = io.StringIO()
    Console(file=buffer, width=width).print(shown)
    with standard_output() as stream:
        stream.writelines(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def say(text: str) -> None:
    """Writes a line to standard error, where there is one that takes it."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO | None) -> None:
    """Sends nowhere what a stream still holds, so that the interpreter's own flush at the end has no complaint."""
    with suppress(OSError, ValueError, AttributeError):  # no stream, or one without a descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[union-attr]
        os.close(null)


def open_closed_streams() -> None:
    """Puts the null device where a standard stream is closed, or the next file opened would take its place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)  # a script that is started gets it as well
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
