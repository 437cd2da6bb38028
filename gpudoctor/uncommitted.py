"""Asks git which files have changes that are not committed. Nothing of the repository is touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

TIMEOUT_S = 60
"""How long git may take: it reads the index of a large repository from a slow disk in seconds."""


def uncommitted(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The files that should not be changed, each with what is wrong.

    A file inside a repository that git does not answer for (it belongs to somebody else, its configuration is damaged,
    git is not installed) counts as changed: nobody can tell. Files that git does not know, and folders that are no
    repository, have nothing to compare with.
    """
    found: dict[str, str] = {}
    for name in names:
        path = Path(os.path.realpath(folder / name))
        answer, complaint = _status(path)
        if answer:
            found[name] = "it has changes that are not committed"
        elif answer is None and _in_repository(path):
            found[name] = f"git cannot say whether it has changes that are not committed ({complaint})"
    return found


def _status(path: Path) -> tuple[str | None, str]:
    """What `git status` says of a file, empty when it is as committed; None and why when git does not say."""
    command = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no", "--ignored=no"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # else `status` may rewrite the index
    try:
        run = subprocess.run(
            [*command, "--", f":(literal){path.name}"],
            cwd=path.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {TIMEOUT_S} s"
    except OSError as error:
        return None, f"git: {error.strerror or error}"
    if run.returncode:
        return None, (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[0]
    return run.stdout, ""


def _in_repository(path: Path) -> bool:
    return "GIT_DIR" in os.environ or any(os.path.lexists(above / ".git") for above in path.parents)
