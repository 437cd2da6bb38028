"""Reads and writes the user's files for `gpudoctor fix`: only below one folder, each whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpudoctor.errors import UsageError
from gpudoctor.fix import Patch
from gpudoctor.fixable import Read


def read(folder: Path, name: str) -> Read:
    """A file below the folder as it is now: its text with line ends and byte order mark, or why there is none.

    Links are followed. The name in the answer is the real file's, relative to the folder, as `git apply` wants it; two
    names of one file (a link, a hard link, `./a.py`) have one identity.
    """
    try:
        root, path = Path(os.path.realpath(folder)), Path(os.path.realpath(folder / name))
    except (OSError, ValueError):  # a name that no file can have
        return Read(name, name, None, "is no name of a file")
    if not path.is_relative_to(root):
        return Read(name, str(path), None, "is not below this folder")
    real = path.relative_to(root).as_posix()
    try:
        found = path.stat()
        text = path.read_bytes().decode("utf-8") if stat.S_ISREG(found.st_mode) else None
        return Read(real, (found.st_dev, found.st_ino), text, "is no file" if text is None else None)
    except UnicodeDecodeError:
        why = "is no UTF-8 text, which is left as it is"
    except (FileNotFoundError, NotADirectoryError):
        why = "is not there"
    except OSError as error:
        why = f"cannot be read ({error.strerror or error})"
    return Read(real, str(path), None, why)


def check_writable(folder: Path, patches: Iterable[Patch]) -> None:
    """Raises UsageError naming the files that are read-only, for their owner too."""
    locked = [
        patch.file
        for patch in patches
        if not (folder / patch.file).stat().st_mode & 0o222 or not os.access(folder / patch.file, os.W_OK)
    ]
    if locked:
        raise UsageError(
            f"{', '.join(locked)}: read-only; make it writable (`chmod u+w`), or apply the diff of "
            "`gpudoctor fix --dry-run` by hand. Nothing was written"
        )


def write(folder: Path, patches: Iterable[Patch]) -> None:
    """Puts the new texts in the files' places. All of them are written beside the files before the first is replaced.

    Owner, mode, extended attributes and hard links stay.

    Raises:
        UsageError: a file changed meanwhile or cannot be written; then no file was replaced, or the text says which.
    """
    drafts: list[tuple[Patch, Path, Path]] = []
    done: list[str] = []
    try:
        for patch in patches:
            path = Path(os.path.realpath(folder / patch.file))
            if read(folder, patch.file).text != patch.before:
                raise UsageError(f"{patch.file} changed meanwhile; nothing was written")
            drafts.append((patch, path, _draft(path, patch.after)))
        for patch, path, draft in drafts:
            _put(patch, path, draft)
            done.append(patch.file)
    except OSError as error:
        what = f"; written already: {', '.join(done)}" if done else "; nothing was written"
        raise UsageError(f"{error.filename or folder}: cannot be written ({error.strerror or error}){what}") from None
    finally:
        for _, _, draft in drafts:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def _draft(path: Path, text: str) -> Path:
    """The text in a file of its own beside the one it will replace, with that one's mode and attributes."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".gpudoctor", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            owner = path.stat()
            os.chown(draft, owner.st_uid, owner.st_gid)
        shutil.copystat(path, draft)
        os.utime(draft)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _put(patch: Patch, path: Path, draft: Path) -> None:
    """Replaces the file by its draft; one with several names, or whose owner the draft cannot have, in place."""
    old, new = path.stat(), draft.stat()
    if old.st_nlink == 1 and (old.st_uid, old.st_gid, old.st_mode) == (new.st_uid, new.st_gid, new.st_mode):
        draft.replace(path)
        return
    try:
        _overwrite(path, draft.read_bytes())
    except OSError:
        with contextlib.suppress(OSError):
            _overwrite(path, patch.before.encode("utf-8"))
        raise


def _overwrite(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
