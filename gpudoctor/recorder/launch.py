"""The parent's side of recording: starts the user's real command with the recorder armed, and waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import gpudoctor
from gpudoctor.errors import RecordingError, UsageError
from gpudoctor.recorder import what_if_result
from gpudoctor.recorder.options import Options
from gpudoctor.recording import Recording, create, discard, join


@dataclass(frozen=True, slots=True)
class Target:
    """What to run.

    Attributes:
        command: the full command, e.g. [python, train.py, --lr, 0.1].
        shown: the script, module or program as the user named it.
        argv: its arguments.
    """

    command: tuple[str, ...]
    shown: str
    argv: tuple[str, ...]


def target(words: list[str], module: str | None) -> Target:
    """Turns command line words into what to run: a script, a module (`-m`), or any command.

    Raises:
        UsageError: nothing to run, or the script does not exist.
    """
    if module is not None:
        return Target((sys.executable, "-m", module, *words), f"-m {module}", tuple(words))
    if not words:
        raise UsageError("nothing to run: name a script (gpudoctor check train.py) or a module (-m package.module)")
    first, rest = words[0], tuple(words[1:])
    if first.endswith((".py", ".pyw")):
        if not Path(first).is_file():
            raise UsageError(f"{first}: no such script in {Path.cwd()}")
        return Target((sys.executable, first, *rest), first, rest)
    return Target((first, *rest), first, rest)


def record(what: Target, options: Options, follow: Callable[[Path], None] = lambda _: None) -> Recording:
    """Runs the command under the recorder and returns the finished recording.

    The script's standard output goes to this process's standard error. Its exit code is
    `manifest["script_exit"]` (negative: killed by that signal). Under torchrun every rank calls this; they share one
    recording.

    Args:
        what: what to run.
        options: how to watch it.
        follow: called with the recording's folder once the command runs.

    Raises:
        RecordingError: the command could not be started, or no folder is writable.
    """
    recording = _open(what, Path.cwd())
    options.save(recording.path)
    began = time.monotonic()
    try:
        child = subprocess.Popen(what.command, stdout=_stdout(), env=_environment(recording.path))
    except OSError as error:
        discard(recording)
        raise RecordingError(f"{what.command[0]}: cannot be started ({error.strerror or error})") from None
    follow(recording.path)
    status = _wait(child)
    if status and what_if_result.interrupted(recording.path):
        status = 0  # the script was stopped with 0 before: what ended the process ended the what-if
        what_if_result.tidy(recording.path)
    recording.manifest["wall_s"] = round(time.monotonic() - began, 3)
    recording.manifest["script_exit"] = status
    if launched_rank() == 0:
        recording.save()
    return recording


def launched_rank() -> int:
    """This process's rank when torchrun started it; 0 when nothing did."""
    return int(os.environ.get("RANK", "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0


def _open(what: Target, cwd: Path) -> Recording:
    label = Path(what.shown.removeprefix("-m ")).stem
    manifest = {
        "gpudoctor": gpudoctor.__version__,
        "command": [what.shown, *what.argv],
        "script": what.shown,
        "argv": list(what.argv),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    if run is None:
        return create(cwd, label, manifest)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return join(cwd, f"{label}-{run}-{os.environ.get('MASTER_PORT', '0')}-{attempt}", manifest)


def _environment(folder: Path) -> dict[str, str]:
    boot = str(Path(__file__).resolve().parent / "boot")
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": boot + (os.pathsep + path if path else ""),
        "GPUDOCTOR_RECORDING": str(folder),
        "GPUDOCTOR_PARENT": str(os.getpid()),
        "GPUDOCTOR_HOME": str(Path(gpudoctor.__file__).resolve().parent.parent),
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),  # Kineto prints its own progress otherwise
    }


def _stdout() -> Any:
    """Where the script's standard output goes: our standard error, so that our own output stays data."""
    try:
        return sys.stderr.fileno()
    except (OSError, AttributeError, ValueError):
        return None


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Waits for the child and passes signals on. Ctrl-C of a terminal reaches the child by itself."""

    def pass_on(number: int, _frame: Any) -> None:
        if number != signal.SIGINT or not _from_terminal():
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _from_terminal() -> bool:
    """Whether this process runs in the foreground of a terminal, whose Ctrl-C goes to the whole group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
