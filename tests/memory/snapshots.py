"""Builds allocator snapshots for tests, as torch's own allocator would write them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
BASE = 0x7F0000000000

Frame = dict[str, Any]


def frame(file: str, line: int, name: str) -> Frame:
    """One call of a stack."""
    return {"filename": file, "line": line, "name": name}


FORWARD = [frame("/home/me/model.py", 7, "forward"), frame("/home/me/train.py", 20, "main")]
BACKWARD = [
    frame("/venv/lib/python3.11/site-packages/torch/_tensor.py", 631, "backward"),
    frame("/home/me/train.py", 21, "main"),
]
STEP = [
    frame("/venv/lib/python3.11/site-packages/torch/optim/adamw.py", 90, "_init_group"),
    frame("/home/me/train.py", 22, "main"),
]


@dataclass
class Recorder:
    """Writes entries with a clock that goes one microsecond each."""

    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, action: str, address: int, size: int, frames: Sequence[Frame] = (), **more: Any) -> None:
        """One entry of the trace."""
        at = 1_700_000_000_000_000 + len(self.entries)
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at, "frames": list(frames)}
        self.entries.append(entry | more)

    def alloc(self, address: int, size: int, frames: Sequence[Frame] = FORWARD) -> None:
        """Memory is given out."""
        self.add("alloc", address, size, frames)

    def free(self, address: int, size: int, frames: Sequence[Frame] = FORWARD) -> None:
        """Memory comes back; the stack is that of its allocation, as torch writes it."""
        self.add("free_requested", address, size, frames)
        self.add("free_completed", address, size, frames)


def block(address: int, size: int, state: str = "active_allocated", frames: Sequence[Frame] = ()) -> dict[str, Any]:
    """A block of a segment."""
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": list(frames)}


def segment(address: int, size: int, blocks: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A segment whose sums fit its blocks."""
    live = sum(each["size"] for each in blocks if each["state"] == "active_allocated")
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": live,
        "active_size": live,
        "requested_size": live,
        "stream": 0,
        "segment_type": "large" if size > 2 * MIB else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(blocks),
    } | more


def snapshot(
    segments: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]] = (), **settings: Any
) -> dict[str, Any]:
    """The whole of it."""
    return {
        "segments": list(segments),
        "device_traces": [list(entries)],
        "allocator_settings": settings,
        "external_annotations": [],
    }


def write(path: Path, content: object, protocol: int = 4) -> Path:
    """Pickles it."""
    path.write_bytes(pickle.dumps(content, protocol))
    return path
