"""Both revisions as git worktrees of a repository of our own that borrows the user's objects.

The user's repository is not told: it gets no worktree, no reference, no lock, so that nothing of the review can be left
in it, however the review ends. Our repository lies in a temporary folder with the worktrees and the recordings.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.errors import RecordingError, UsageError
from gpudoctor.review.git import GitError, clean_environment, git, names
from gpudoctor.review.repository import Repository, Revision

_SETTINGS = r"^(filter\.|lfs\.|core\.(autocrlf|eol|symlinks|filemode|longpaths|attributesfile)$)"
"""The repository's own settings that change what a checkout writes."""
COPIED_BYTES = 16 << 20
"""Untracked files up to this size are copied; larger ones are linked: code and configurations are small."""


@dataclass(slots=True)
class Checkouts:
    """A temporary folder with both revisions.

    Attributes:
        folder: where everything lies.
        base: the worktree of the base.
        head: the worktree of the head.
        notes: what a checkout lacks, a sentence each.
    """

    folder: Path
    base: Path
    head: Path
    notes: list[str] = field(default_factory=list)

    def remove(self) -> None:
        """Deletes the folder; linked data stays."""
        shutil.rmtree(self.folder, ignore_errors=True)


def place() -> Path:
    """Name of a temporary folder that does not exist yet."""
    root = Path(tempfile.gettempdir()).resolve()
    return root / f"gpudoctor-review-{os.getpid()}-{os.urandom(4).hex()}"


def check_out(repository: Repository, base: Revision, head: Revision, links: Sequence[str], folder: Path) -> Checkouts:
    """Fills a new folder with both revisions.

    Args:
        repository: the user's.
        base: revision before.
        head: revision after; with uncommitted changes these are laid on top.
        links: files and folders, relative to the working folder, that are linked into both.
        folder: see `place`.

    Raises:
        UsageError: git cannot check them out, or there is nothing to link.
    """
    folder.mkdir(mode=0o700)
    made = Checkouts(folder, folder / "base", folder / "head")
    try:
        store = _store(repository, folder)
        for tree, revision in ((made.base, base), (made.head, head)):
            words = ("worktree", "add", "--detach", "--quiet", str(tree), revision.commit)
            git(store, *words, environment=clean_environment())
        if head.dirty:
            _overlay(repository, made)
    except GitError as error:
        raise UsageError(f"the revisions cannot be checked out: {error}") from None
    except OSError as error:
        raise RecordingError(f"{folder}: the revisions cannot be written ({error.strerror or error})") from None
    for name in links:
        _link(repository, name, made)
    if repository.has_submodules():
        made.notes.append("submodules are not checked out: what the script needs of them goes in by --link")
    return made


def _store(repository: Repository, folder: Path) -> Path:
    """A bare repository that borrows the user's objects."""
    store = folder / "store.git"
    git(folder, "init", "--bare", "--quiet", "--template=", str(store), environment=clean_environment())
    (store / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (store / "objects" / "info" / "alternates").write_text(f"{repository.objects}\n", encoding="utf-8")
    shallow = repository.objects.parent / "shallow"
    if shallow.is_file():
        shutil.copyfile(shallow, store / "shallow")
    for entry in _settings(repository):
        name, _, value = entry.partition("\n")
        git(store, "config", "--add", name, value, environment=clean_environment())
    if not any(entry.startswith("lfs.storage") for entry in _settings(repository)):
        git(store, "config", "lfs.storage", str(repository.objects.parent / "lfs"), environment=clean_environment())
    return store


def _settings(repository: Repository) -> list[str]:
    try:
        return names(git(repository.top, "config", "--local", "-z", "--get-regexp", _SETTINGS))
    except GitError:  # it has none of them
        return []


def _overlay(repository: Repository, made: Checkouts) -> None:
    """Lays uncommitted changes over the head."""
    patch = repository.changes()
    if patch:
        git(made.head, "apply", "--whitespace=nowarn", "-", stdin=patch, environment=clean_environment())
    for name in repository.untracked():
        source, target = repository.top / name, made.head / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() or source.stat().st_size <= COPIED_BYTES:
            shutil.copy2(source, target, follow_symlinks=False)
        else:
            target.symlink_to(source)


def _link(repository: Repository, name: str, made: Checkouts) -> None:
    source = Path(os.path.normpath(repository.cwd / name))
    if not source.exists():
        raise UsageError(f"--link {name}: no such file or folder in {repository.cwd}")
    try:
        inside = source.relative_to(repository.top)
    except ValueError:
        raise UsageError(f"--link {name}: it lies outside of {repository.top}; the script finds it as it is") from None
    for tree in (made.base, made.head):
        target = tree / inside
        if target.is_symlink() or target.exists():
            raise UsageError(
                f"--link {name}: git tracks it, so that each revision has its own; only ignored data is linked"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
