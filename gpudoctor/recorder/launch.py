"""The parent's side of recording: starts the user's real command with the recorder armed, and waits."""

from __future__ import annotations

import contextlib
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


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where a run takes place when that is not the user's working folder.

    Attributes:
        cwd: working folder of the run.
        recording: folder to be made for the recording.
        moved: the user's tree, and the worktree that stands for it.
    """

    cwd: Path
    recording: Path
    moved: tuple[Path, Path]


class Interrupted(BaseException):
    """A signal ended the run; nothing is to follow.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by signal {number}")
        self.number = number


def record(
    what: Target,
    options: Options,
    follow: Callable[[Path], None] = lambda _: None,
    elsewhere: Elsewhere | None = None,
) -> Recording:
    """Runs the command under the recorder and returns the finished recording.

    The script's standard output goes to this process's standard error. Its exit code is
    `manifest["script_exit"]` (negative: killed by that signal). Under torchrun every rank calls this; they share one
    recording.

    Args:
        what: what to run.
        options: how to watch it.
        follow: called with the recording's folder once the command runs.
        elsewhere: where it runs, if not in the working folder; a signal then ends the run and is raised.

    Raises:
        Interrupted: a signal came, and the run was to be elsewhere.
        RecordingError: the command could not be started, or no folder is writable.
    """
    recording = _open(what, Path.cwd(), elsewhere)
    options.save(recording.path)
    began = time.monotonic()
    try:
        where = elsewhere.cwd if elsewhere else None
        child = subprocess.Popen(what.command, stdout=_stdout(), env=_environment(recording.path, elsewhere), cwd=where)
    except OSError as error:
        discard(recording)
        raise RecordingError(f"{what.command[0]}: cannot be started ({error.strerror or error})") from None
    follow(recording.path)
    status, signals = _wait(child, patience_s=PATIENCE_S if elsewhere else None)
    if signals and elsewhere:
        raise Interrupted(signals[0])
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


PATIENCE_S = 5.0
"""Seconds that a script has for its own end after a signal, before it is killed: a checkpoint is written in less."""


def _open(what: Target, cwd: Path, elsewhere: Elsewhere | None) -> Recording:
    label = Path(what.shown.removeprefix("-m ")).stem
    manifest = {
        "gpudoctor": gpudoctor.__version__,
        "command": [what.shown, *what.argv],
        "script": what.shown,
        "argv": list(what.argv),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    if elsewhere is not None:
        elsewhere.recording.mkdir(parents=True)
        recording = Recording(elsewhere.recording, manifest)
        recording.save()
        return recording
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    if run is None:
        return create(cwd, label, manifest)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return join(cwd, f"{label}-{run}-{os.environ.get('MASTER_PORT', '0')}-{attempt}", manifest)


def _environment(folder: Path, elsewhere: Elsewhere | None) -> dict[str, str]:
    boot = str(Path(__file__).resolve().parent / "boot")
    path = os.environ.get("PYTHONPATH")
    moved = {}
    if elsewhere is not None:
        moved = {"GPUDOCTOR_MOVED": os.pathsep.join(map(str, elsewhere.moved)), "PWD": str(elsewhere.cwd)}
    return {
        **os.environ,
        **moved,
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


def _wait(child: subprocess.Popen[bytes], patience_s: float | None = None) -> tuple[int, list[int]]:
    """Waits for the child and passes signals on. Ctrl-C of a terminal reaches the child by itself.

    Args:
        child: the process.
        patience_s: seconds from a signal on after which it is killed; None for as long as it takes.

    Returns:
        Its exit status, and the signals that came.
    """
    came: list[int] = []

    def pass_on(number: int, _frame: Any) -> None:
        came.append(number)
        if number != signal.SIGINT or not _from_terminal():
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while patience_s is not None and not came and child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_S)
        try:
            return child.wait(patience_s), came
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait(), came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_LOOK_S = 0.2
"""How often a wait looks whether a signal came: Python's own wait goes on behind a handler."""


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
