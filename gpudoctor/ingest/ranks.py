"""Which recordings, traces and compile logs lie at some paths, and which rank each of them is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.ingest import compile_records
from gpudoctor.recording import BEGUN, is_recording

_TRACE = re.compile(r"\.json(?:\.gz)?$|\.pt\.trace\.json", re.IGNORECASE)
_LOG = re.compile(r"torch_trace|\.(?:log|txt)(?:\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?:rank|worker|gpu)[-_. ]?(\d+)(?!\d)", re.IGNORECASE)
DRAWN = ".critical_path.json"
"""In the name of a copy that `gpudoctor open --critical-path` made of a trace: no rank of its own."""

_OURS = frozenset({".git", ".venv", "node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Input:
    """One recording, trace or compile log.

    Attributes:
        path: its folder or file.
        named: the rank that its name, or its folder's, says; None when they say none.
        certain: somebody named it, or it is named like a trace: that it cannot be read is an error, not a coincidence.
    """

    path: Path
    named: int | None = None
    certain: bool = True


def find(paths: Sequence[Path]) -> list[Input]:
    """The inputs at some paths: files and recordings as they are given, of other folders the traces and
    compile logs inside.

    Raises:
        InputError: nothing is at a path, or a folder has neither a recording nor a trace nor a compile log in it.
    """
    found: dict[Path, Input] = {}
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if path.is_dir() and not is_recording(path):
            inside = list(_inside(path))
            if not inside:
                raise InputError(
                    f"{path}: a folder without recording.json and without a trace (*.json, *.json.gz) or a compile log "
                    "(TORCH_TRACE) in it; name a recording (.gpudoctor/latest), such a file or a folder of them"
                )
        else:
            inside = [Input(path, named_rank(path))]
        for one in inside:
            found.setdefault(one.path.resolve(), one)
    return list(found.values())


def _inside(folder: Path) -> Iterable[Input]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        recordings = [name for name in folders if is_recording(here / name)]
        for name in sorted(recordings):
            yield Input(here / name, named_rank(here / name))
        folders[:] = sorted(set(folders) - set(recordings) - _OURS)
        recorded = here != folder and (here.parent / BEGUN).is_file()  # a part of a recording, not an input by itself
        for name in sorted(files, key=_natural):
            log = not recorded and bool(_LOG.search(name)) and is_log(here / name)
            trace = DRAWN not in name and bool(_TRACE.search(name))
            if log or (trace and (here / name).is_file()):  # a pipe would be waited for
                rank = named_rank(Path(name)) if here == folder else named_rank(here.relative_to(folder) / name)
                yield Input(here / name, rank, certain=log or rank is not None or "trace" in name.lower())


def logs(folder: Path) -> list[Path]:
    """The compile logs in a folder."""
    return [one.path for one in _inside(folder) if not is_recording(one.path) and is_log(one.path)]


def is_log(path: Path) -> bool:
    """Whether a file is a compile log; a pipe, and a file that cannot be read, are none."""
    try:
        return path.is_file() and compile_records.is_log(path)
    except OSError:
        return False


def named_rank(path: Path) -> int | None:
    """The rank that a file's name says (rank-34, rank_0, worker3), or else its folder's."""
    for name in (path.name, path.parent.name):
        if match := _RANK.search(name):
            return int(match[1])
    return None


def assigned(ranks: Sequence[int | None]) -> list[int]:
    """Ranks for those that say none: the lowest that nobody has, in order."""
    free = (number for number in range(len(ranks) + len(set(ranks))) if number not in ranks)
    return [next(free) if rank is None else rank for rank in ranks]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts rank10 behind rank9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
