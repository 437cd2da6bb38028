"""Writes what the compile log lacks: torch.compile's counters, and the state of its caches on this machine.

Everything is only read, at the very end, and only in a process that has loaded Dynamo itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gpudoctor.recorder import torch_private

FILE = "compile.json"
MAX_FILES = 20_000  # a tenth of a second to count; a cache that others share can hold millions


def save(folder: Path) -> None:
    """Writes `compile.json`, unless nothing in the process can have compiled."""
    counters = torch_private.compile_counters()
    if counters is None:
        return
    place = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or torch_private.compile_cache_folder()
    state = {
        "counters": counters,
        "enabled": torch_private.compile_caches(),
        "folder": cache_folder(place) | {"filesystem": filesystem(place)} if place else {},
    }
    (folder / FILE).write_text(json.dumps(state), encoding="utf-8")


def cache_folder(place: str, limit: int = MAX_FILES) -> dict[str, Any]:
    """Size of a cache folder and whether it can be written to, or could be made.

    Args:
        place: the folder.
        limit: files after which counting stops.
    """
    above = place
    while not os.path.exists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    found: dict[str, Any] = {"folder": place, "writable": os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK)}
    if not os.path.isdir(place):
        return found | {"bytes": None, "files": None, "complete": None}
    size = files = 0
    for where, _, names in os.walk(place):
        for name in names:
            if files == limit:
                return found | {"bytes": size, "files": files, "complete": False}
            try:
                size += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # another process clears up meanwhile
                continue
            files += 1
    return found | {"bytes": size, "files": files, "complete": True}


def filesystem(place: str, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Type of the file system that a path lies on; None where the system does not tell.

    Args:
        place: the path, which need not exist.
        mounts: the table of mounts, see proc(5).
    """
    try:
        rows = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return None
    real = os.path.realpath(place)
    above = [(row[1], row[2]) for row in rows if len(row) > 2 and (real + "/").startswith(row[1].rstrip("/") + "/")]
    return max(reversed(above), key=lambda row: len(row[0]), default=(None, None))[1]  # the last mount hides others
