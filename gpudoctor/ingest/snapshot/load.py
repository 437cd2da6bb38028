"""An allocator snapshot on its own, or beside a trace → Profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis.memory import tables as memory
from gpudoctor.analysis.memory.predictions import MOST_ALLOCATIONS
from gpudoctor.analysis.memory.reading import Reading, has_history, reading
from gpudoctor.errors import InputError
from gpudoctor.ingest.snapshot import contents
from gpudoctor.profile import Profile

_NOTHING_ELSE = "an allocator snapshot tells only of the GPU's memory"
_TOO_LONG = f"the history has more than {MOST_ALLOCATIONS:,} allocations: replaying it would take too long"
_TAKEN = "the snapshot is taken to be of the same run: nothing in the two files says so"
_NO_HISTORY = "the snapshot has no recorded history: `torch.cuda.memory._record_memory_history()` was not on"


def load(path: Path) -> Profile:
    """The Profile of a snapshot.

    Raises:
        InputError: the file cannot be read, is no snapshot, or wants code to be run.
    """
    read = _read(path)
    missing = dict.fromkeys(schema.TABLES, _NOTHING_ELSE) | _missing(read)
    made = memory.tables(read)
    facts: dict[str, Any] = {
        "script": path.name,
        "device": "GPU",
        "gpu": True,
        "steps": 0,
        "stopped": "the snapshot was taken",
        "notes": _notes(read),
        "snapshot": {"entries": len(read.contents.trace), "segments": len(read.contents.segments)},
    }
    why = {name: reason for name, reason in missing.items() if name not in made}
    return Profile(schema.tables({}, made), facts, {}, why)


def beside(profile: Profile, path: Path) -> Profile:
    """A Profile with the tables of a snapshot that was taken in the same run.

    Raises:
        InputError: as `load()`.
    """
    read = _read(path)
    made = memory.tables(read)
    frames = {name: profile.tables[name] for name in profile.tables if name not in made}
    why = {name: reason for name, reason in profile.why_missing.items() if name not in made} | {
        name: reason for name, reason in _missing(read).items() if name not in made
    }
    notes = [*profile.facts.get("notes", ()), *_notes(read), _TAKEN]
    return replace(
        profile, tables=schema.tables(frames, made), facts={**profile.facts, "notes": notes}, why_missing=why
    )


def _read(path: Path) -> Reading:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        raise InputError(f"{path}: a folder; name the file that `torch.cuda.memory._dump_snapshot` wrote")
    return reading(contents.read(path))


def _missing(read: Reading) -> dict[str, str]:
    if not has_history(read):
        return dict.fromkeys(("allocations", "memory_curve", "allocator_replays"), _NO_HISTORY)
    return {"allocator_replays": _TOO_LONG}


def _notes(read: Reading) -> list[str]:
    notes = ["what memory holds is inferred from call stacks and lifetimes: a snapshot names no tensors"]
    if not read.contents.segments:
        notes.append("the snapshot has no segments: nothing was allocated on a GPU, or the cache was empty")
    return notes
