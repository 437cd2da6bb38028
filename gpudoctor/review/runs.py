"""Runs both revisions in turns, each in its worktree, with the same steps watched in the same way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.errors import RecordingError, UsageError
from gpudoctor.recorder.launch import Elsewhere, Target, record
from gpudoctor.recorder.options import Options
from gpudoctor.recording import Recording
from gpudoctor.review.checkouts import Checkouts
from gpudoctor.review.repository import Repository

STEPS = 30
"""Steps of a run: up to three that compile, eight under the profiler with five between, and a dozen to be timed."""
BUDGET_S = 600.0
"""Seconds of steps at most; the count of steps ends a run, so that both revisions are watched over the same ones."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Recordings of both revisions; those at one place were made one after the other."""

    base: tuple[Recording, ...]
    head: tuple[Recording, ...]


def command(words: Sequence[str], module: str | None, folder: Path, below: Path) -> Target:
    """What to run in a worktree.

    Args:
        words: script and arguments, or a module's arguments.
        module: module to run, as with `python -m`.
        folder: the worktree.
        below: the working folder in it.

    Raises:
        UsageError: the revision has no such script, or nothing is named.
    """
    if module is not None:
        return Target((sys.executable, "-m", module, *words), f"-m {module}", tuple(words))
    if not words:
        raise UsageError("nothing to run: name a script (gpudoctor review --base main train.py) or a module (-m)")
    first, rest = words[0], tuple(words[1:])
    if not first.endswith((".py", ".pyw")):
        return Target((first, *rest), first, rest)
    if Path(first).is_absolute():
        raise UsageError(f"{first}: name the script relative to the working folder: each revision runs its own")
    if not (folder / below / first).is_file():
        raise UsageError(f"{first}: the {folder.name} has no such script in {below}; name one that both revisions have")
    return Target((sys.executable, first, *rest), first, rest)


def run_all(
    checkouts: Checkouts,
    repository: Repository,
    words: Sequence[str],
    module: str | None,
    pairs: int,
    steps: int,
    say: Callable[[str], None],
) -> Runs:
    """Runs `pairs` pairs in turns: base and head, head and base, and so on.

    A run that fails is the last one: what it showed is kept.

    Raises:
        UsageError: a revision has no such script.
        Interrupted: a signal came.
    """
    trees = {"base": checkouts.base, "head": checkouts.head}
    targets = {side: command(words, module, tree, repository.below) for side, tree in trees.items()}
    made: dict[str, list[Recording]] = {"base": [], "head": []}
    for pair in range(pairs):
        for side in ("base", "head") if pair % 2 == 0 else ("head", "base"):
            say(f"run {pair + 1} of {pairs} of the {side}" if pairs > 1 else f"run of the {side}")
            tree = trees[side]
            folder = checkouts.folder / "recordings" / side / f"run{pair + 1}"
            elsewhere = Elsewhere(tree / repository.below, folder, (repository.top, tree))
            options = Options(str(tree), budget_s=BUDGET_S, max_steps=steps, what_if="none")
            if not elsewhere.cwd.is_dir():
                raise UsageError(
                    f"the {side} has no folder {repository.below}; start from one that both revisions have"
                )
            try:
                recording = record(targets[side], options, elsewhere=elsewhere)
            except OSError as error:
                raise RecordingError(f"{folder}: cannot be written ({error.strerror or error})") from None
            made[side].append(recording)
            if recording.manifest["script_exit"]:
                return Runs(tuple(made["base"]), tuple(made["head"]))
    return Runs(tuple(made["base"]), tuple(made["head"]))
