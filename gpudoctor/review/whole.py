"""A review: check both revisions out, run them in turns, prove whose code ran, compare."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from gpudoctor.compare import Comparison, compare
from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis, to_json
from gpudoctor.engine.rule import Rule
from gpudoctor.errors import InconclusiveError, RecordingError, ScriptError
from gpudoctor.ingest.recording import load
from gpudoctor.recorder.launch import Interrupted
from gpudoctor.recording import HOME, Recording
from gpudoctor.review import proof
from gpudoctor.review.checkouts import Checkouts, check_out, place
from gpudoctor.review.repository import Repository, Revision
from gpudoctor.review.runs import Runs, run_all

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        base: revision before.
        head: revision after.
        words: script and arguments.
        module: module to run instead of a script.
        links: ignored files and folders to link into both worktrees.
        pairs: runs of each revision.
        steps: steps of a run.
        gate_time: a slower step is worse.
    """

    base: Revision
    head: Revision
    words: tuple[str, ...]
    module: str | None
    links: tuple[str, ...]
    pairs: int
    steps: int
    gate_time: bool


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The outcome.

    Attributes:
        comparison: what changed.
        head: diagnosis of the head's first run.
        folder: where the recordings are kept; None where no folder could be written.
    """

    comparison: Comparison
    head: Diagnosis
    folder: Path | None


def review(
    repository: Repository, request: Request, rules: Sequence[Rule], config: Config, say: Callable[[str], None]
) -> Reviewed:
    """Compares two revisions; the user's tree, index, references and list of worktrees are never touched.

    Raises:
        UsageError: a revision cannot be checked out or run.
        InconclusiveError: the code that ran was not the worktree's own.
        Interrupted: a signal came; nothing is left behind.
    """
    folder = place()
    with _cleaned_up(folder):
        say(f"checking out {request.base.label} and {request.head.label}")
        checkouts = check_out(repository, request.base, request.head, request.links, folder)
        runs = run_all(checkouts, repository, request.words, request.module, request.pairs, request.steps, say)
        _check_base(runs, repository)
        say("comparing")
        _prove(runs, repository, checkouts, request)
        base, head = _diagnosed(runs.base, rules, config), _diagnosed(runs.head, rules, config)
        made = _compared(base, head, runs, request, config, checkouts)
        kept = _kept(repository, folder)
        return Reviewed(made, head[0], kept)


def _prove(runs: Runs, repository: Repository, checkouts: Checkouts, request: Request) -> None:
    for side, recordings in (("base", runs.base), ("head", runs.head)):
        tree = checkouts.base if side == "base" else checkouts.head
        for recording in recordings:
            found = proof.strangers(recording, repository, tree, request.links)
            if found:
                more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                raise InconclusiveError(
                    f"the run of the {side} did not use its own revision's code: it imported "
                    f"{', '.join(found[:_SHOWN])}{more}; uninstall that package, or install it editable "
                    "(`pip install -e .`)"
                )
            if recording.ranks and not recording.manifest["script_exit"] and proof.unproven(recording, tree):
                raise InconclusiveError(
                    f"the run of the {side} used no file of its revision; name a script that lies in the repository"
                )


def _diagnosed(recordings: Sequence[Recording], rules: Sequence[Rule], config: Config) -> list[Diagnosis]:
    made = []
    for recording in recordings:
        diagnosis = diagnose(load(recording), rules, config)
        (recording.path / "diagnosis.json").write_text(to_json(diagnosis), encoding="utf-8")
        made.append(diagnosis)
    return made


def _compared(
    base: list[Diagnosis], head: list[Diagnosis], runs: Runs, request: Request, config: Config, checkouts: Checkouts
) -> Comparison:
    made = compare(
        base,
        head,
        (request.base.label, request.head.label),
        pairs=True,
        gate_time=request.gate_time,
        tolerance=config.tolerance,
        sources=(load(runs.base[0]).sources, load(runs.head[0]).sources),
    )
    return replace(made, caveats=(*made.caveats, *checkouts.notes))


def _check_base(runs: Runs, repository: Repository) -> None:
    """The base has to run: with nothing to compare with, the head is not even started."""
    status = runs.base[0].manifest["script_exit"] if runs.base else 0
    if not status:
        return
    how = f"was killed by signal {-status}" if status < 0 else f"failed with exit code {status}"
    ignored = repository.ignored()
    hint = ""
    if ignored:
        names = ", ".join(ignored[:_SHOWN])
        hint = f"; files that git ignores ({names}) are not in it: does it need `--link {ignored[0].rstrip('/')}`?"
    raise ScriptError(f"{runs.base[0].manifest['script']} {how} in the base{hint}")


def _kept(repository: Repository, folder: Path) -> Path | None:
    """Moves the recordings into the user's `.gpudoctor/`, which git ignores."""
    home = repository.cwd / HOME
    target = home / f"review-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / ".gitignore").write_text("*\n", encoding="utf-8")
        shutil.move(folder / "recordings", target)
    except (OSError, shutil.Error, RecordingError):
        return None
    return target


@contextmanager
def _cleaned_up(folder: Path) -> Iterator[None]:
    """Removes a folder on every way out; a signal on the way is raised as Interrupted, and waits during removal."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        with suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)
