"""Asks git, and never writes: no lock is taken in the user's repository, and no index is refreshed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gpudoctor.errors import UsageError

_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
           "GIT_ALTERNATE_OBJECT_DIRECTORIES")  # fmt: skip
"""Variables by which a hook or a wrapper points git at a repository: ours is another one."""


class GitError(Exception):
    """A git command failed; its text is git's own last line."""


def clean_environment() -> dict[str, str]:
    """This process's environment without what points git at a repository."""
    return {name: value for name, value in os.environ.items() if name not in _PLACES}


def git(folder: Path, *words: str, stdin: bytes | None = None, environment: Mapping[str, str] | None = None) -> bytes:
    """Runs a git command in a folder; returns its standard output.

    Raises:
        UsageError: there is no git.
        GitError: it failed.
    """
    env = {**(environment if environment is not None else os.environ), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], input=stdin, capture_output=True, env=env, check=False
        )
    except FileNotFoundError:
        raise UsageError("git is not installed, and a review compares two revisions of a repository") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(said[-1].removeprefix("fatal: ") if said else f"git {words[0]} failed")
    return done.stdout


def line(folder: Path, *words: str) -> str:
    """The command's output as one line of text."""
    return git(folder, *words).decode(errors="surrogateescape").strip()


def names(output: bytes) -> list[str]:
    """Paths of a command with `-z`."""
    return [os.fsdecode(name) for name in output.split(b"\0") if name]
