"""The memory tables of a recording: its snapshot, with what the run itself knew of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpudoctor.analysis.memory import tables as memory
from gpudoctor.analysis.memory.reading import reading
from gpudoctor.columns import MISSING, Columns, coded
from gpudoctor.errors import InputError
from gpudoctor.ingest.snapshot import contents
from gpudoctor.recording import MEMORY_FILE, part
from gpudoctor.userfiles import UserFiles

OBJECTS, FAILED = "memory_objects.json", "out_of_memory.json"
_TABLES = ("allocator", "segments", "blocks", "fragmentation", "memory_peak", "allocations", "memory_curve")
_REPLAYS = "allocator_replays"


def tables(
    rank: Path, run: Mapping[str, Any], files: UserFiles, gpu: bool, notes: list[str]
) -> tuple[dict[str, Columns], dict[str, str]]:
    """The tables, and why others are missing.

    Args:
        rank: the rank's folder.
        run: its facts.
        files: the user's files.
        gpu: the run used one.
        notes: takes what was lost.
    """
    path = rank / MEMORY_FILE
    if not path.is_file():
        why = "the allocator's history was not recorded" if gpu else "the run used no GPU"
        return {}, dict.fromkeys((*_TABLES, _REPLAYS), why)
    try:
        read = contents.read(path)
    except InputError as error:
        notes.append(f"the allocator's snapshot is lost: {error}")
        return {}, dict.fromkeys((*_TABLES, _REPLAYS), "the allocator's snapshot cannot be read")
    known = {(int(device), int(address)): str(held) for device, address, held in part(rank / OBJECTS, [])}
    failed: dict[str, Any] = part(rank / FAILED, {})
    capacity = {int(device): int(size) for device, size in run.get("gpu_memory", [])}
    if failed:
        capacity.setdefault(int(failed["device"]), int(failed["capacity_bytes"]))
    made = memory.tables(reading(read, known, files.name), capacity)
    if failed and "allocator" in made:
        made["allocator"] = _with_failure(made["allocator"], failed)
    missing = {name: "the snapshot has no recorded history" for name in (*_TABLES, _REPLAYS) if name not in made}
    return made, missing


def _with_failure(allocator: Columns, failed: Mapping[str, Any]) -> Columns:
    """The table with the request that failed, as the run saw it; the snapshot is of that moment."""
    devices = allocator["device"]
    assert isinstance(devices, np.ndarray)
    mine = [device == failed["device"] for device in devices.tolist()]
    changed: dict[str, Any] = dict(allocator)
    for name in ("ooms", "oom_bytes", "oom_device_free_bytes"):
        changed[name] = _put(allocator[name], mine, failed[name])
    for name, source in (("oom_reserved_bytes", "reserved_bytes"), ("oom_allocated_bytes", "allocated_bytes")):
        changed[name] = _put(allocator[name], mine, None, allocator[source])
    changed["oom_line"] = _put(allocator["oom_line"], mine, failed.get("line", MISSING))
    for name, key in (("oom_file", "file"), ("oom_function", "function")):
        changed[name] = coded(np.arange(len(mine)), [failed.get(key) if each else None for each in mine])
    return changed


def _put(column: Any, mine: list[bool], value: int | None, other: Any = None) -> Any:
    made = column.copy()
    for row, each in enumerate(mine):
        if each:
            made[row] = other[row] if value is None else value
    return made
