"""The user's repository as a review reads it: revisions, uncommitted changes, ignored files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpudoctor.errors import UsageError
from gpudoctor.review.git import GitError, git, line, names

SHORT = 10
"""Digits of a commit's id that are shown."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit, and whether the uncommitted changes of the working tree lie on top.

    Attributes:
        commit: full id.
        name: as it was asked for.
        dirty: with uncommitted changes.
    """

    commit: str
    name: str
    dirty: bool = False

    @property
    def label(self) -> str:
        """How a report calls it."""
        short = self.commit[:SHORT]
        shown = short if self.commit.startswith(self.name) else f"{self.name} ({short})"
        return f"{shown} with uncommitted changes" if self.dirty else shown


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository and the user's working folder in it.

    Attributes:
        top: the top of the working tree, links resolved.
        cwd: the working folder, links resolved.
        objects: where its objects lie.
    """

    top: Path
    cwd: Path
    objects: Path

    @property
    def below(self) -> Path:
        """The working folder relative to the top."""
        return self.cwd.relative_to(self.top)

    def revision(self, name: str) -> Revision:
        """Looks a revision up.

        Raises:
            UsageError: there is none of that name.
        """
        try:
            commit = line(self.cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except GitError:
            raise UsageError(
                f"{name}: no such revision in {self.top}; fetch it first (in CI: `fetch-depth: 0`)"
            ) from None
        return Revision(commit, name)

    def working_tree(self) -> Revision:
        """What is checked out, with uncommitted changes.

        Raises:
            UsageError: nothing was ever committed.
        """
        commit = self.revision("HEAD").commit
        changed = git(self.top, "status", "--porcelain", "--ignore-submodules=all", "-z")
        return Revision(commit, "HEAD", dirty=bool(changed))

    def changes(self) -> bytes:
        """Uncommitted changes of tracked files, as a patch."""
        words = (
            "--binary",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--ignore-submodules=all",
            "--src-prefix=a/",
        )
        return git(self.top, "diff", *words, "--dst-prefix=b/", "--no-renames", "HEAD")

    def untracked(self) -> list[str]:
        """Files that are neither tracked nor ignored, relative to the top."""
        return names(git(self.top, "ls-files", "--others", "--exclude-standard", "-z"))

    def ignored(self) -> list[str]:
        """Ignored files and folders, relative to the top; of folders only the outermost."""
        found = names(git(self.top, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"))
        return [name for name in found if not name.rstrip("/").endswith((".gpudoctor", "__pycache__", ".venv"))]

    def has_submodules(self) -> bool:
        """Whether some of it lies in other repositories."""
        return (self.top / ".gitmodules").is_file()


def find(cwd: Path) -> Repository:
    """The repository around a folder.

    Raises:
        UsageError: there is none, or it has no working tree.
    """
    here = cwd.resolve()
    try:
        top = Path(line(here, "rev-parse", "--show-toplevel")).resolve()
        objects = Path(line(here, "rev-parse", "--path-format=absolute", "--git-path", "objects"))
    except GitError as error:
        raise UsageError(f"{cwd}: not in a git repository with a working tree ({error})") from None
    return Repository(top, here, objects)
