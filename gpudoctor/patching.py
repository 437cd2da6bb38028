"""Reads and writes the user's files for `gpudoctor fix`: only below one folder, each whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpudoctor.errors import UsageError
from gpudoctor.fix import Patch


def read_text(folder: Path, name: str) -> str | None:
    """A file's text with its line ends and byte order mark; None when it is no readable UTF-8 file below the folder."""
    path = _below(folder, name)
    if path is None:
        return None
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write(folder: Path, patches: Iterable[Patch]) -> None:
    """Puts the new texts in the files' places. All of them are written beside the files before the first is replaced.

    Raises:
        UsageError: a file changed meanwhile or cannot be written; then no file was replaced, or the text says which.
    """
    drafts: list[tuple[Path, Path]] = []
    done: list[str] = []
    try:
        for patch in patches:
            path = _below(folder, patch.file)
            if path is None or read_text(folder, patch.file) != patch.before:
                raise UsageError(f"{patch.file} changed meanwhile; nothing was written")
            drafts.append((path, _draft(path, patch.after)))
        for path, draft in drafts:
            draft.replace(path)
            done.append(path.name)
    except OSError as error:
        what = f"; written already: {', '.join(done)}" if done else "; nothing was written"
        raise UsageError(f"{error.filename or folder}: cannot be written ({error.strerror or error}){what}") from None
    finally:
        for _, draft in drafts:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def uncommitted(folder: Path, names: Iterable[str]) -> list[str]:
    """Which of the files git tracks and has changes of that are not committed. Nothing of the repository is touched.

    Files that git does not know, and folders that are no repository, have none: there is nothing to compare with.
    """
    changed = []
    for name in names:
        command = ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no", "--", f":(literal){name}"]
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # else `status` may rewrite the index
        try:
            run = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if run.returncode == 0 and run.stdout:
            changed.append(name)
    return changed


def _below(folder: Path, name: str) -> Path | None:
    """The real file below the folder; None when the name leads out of it, by `..` or by a link, or to no file."""
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / name))
    return path if path.is_relative_to(root) and path.is_file() else None


def _draft(path: Path, text: str) -> Path:
    """The text in a file of its own beside the one it will replace, with that one's mode."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".gpudoctor", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(stat.S_IMODE(path.stat().st_mode))
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft
