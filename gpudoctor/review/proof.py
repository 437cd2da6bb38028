"""Proof that a run used the code of its own worktree: by the files of what it imported.

An editable install, a `.pth` file or PYTHONPATH can point into the user's own tree, and an installed package is in
neither revision: both runs would then be of the same code, and every comparison would say "same".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpudoctor.recording import Recording, part
from gpudoctor.review.repository import Repository
from gpudoctor.userfiles import IMPORTED_FILE


def strangers(recording: Recording, repository: Repository, tree: Path, links: Sequence[str]) -> list[str]:
    """What of the code did not come from the worktree, `module from file` each.

    Args:
        recording: of a run in the worktree.
        repository: the user's.
        tree: the worktree.
        links: what was linked in from the user's tree on purpose.
    """
    linked = [(repository.cwd / name).resolve() for name in links]
    found: dict[str, None] = {}
    for rank in recording.ranks:
        imported: dict[str, str] = part(rank / IMPORTED_FILE, {})
        for module, file in imported.items():
            path = Path(file).resolve()
            if path.is_relative_to(tree) or any(path.is_relative_to(one) for one in linked):
                continue
            top = module.partition(".")[0]
            if _is_users(path, repository) or _is_copy(path, top, tree, repository):
                found[f"{top} from {path}"] = None
    return list(found)


def unproven(recording: Recording, tree: Path) -> bool:
    """Whether no file of the worktree is among what was imported."""
    files = [file for rank in recording.ranks for file in part(rank / IMPORTED_FILE, dict[str, str]()).values()]
    return not any(Path(file).resolve().is_relative_to(tree) for file in files)


def _is_users(path: Path, repository: Repository) -> bool:
    """Whether a file lies in the user's working tree; an environment of packages inside it does not count."""
    return path.is_relative_to(repository.top) and not {"site-packages", "dist-packages"} & set(path.parts)


def _is_copy(path: Path, module: str, tree: Path, repository: Repository) -> bool:
    """Whether an installed module is a copy of one in the worktree (`pip install .`)."""
    roots = dict.fromkeys((tree / repository.below, tree, tree / "src", tree / repository.below / "src"))
    for candidate in (folder / name for folder in roots for name in (f"{module}.py", f"{module}/__init__.py")):
        try:
            text = candidate.read_bytes()
            if text.strip() and text == path.read_bytes():
                return True
        except OSError:
            continue
    return False
