"""Memory that the process has in RAM, and what is left of the machine's, the container's and the GPU's."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_CGROUP = Path("/sys/fs/cgroup")


def resident() -> int | None:
    """Bytes of this process that lie in RAM; None where the system does not tell. Takes 10 µs."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def host(cgroup: Path = _CGROUP) -> int | None:
    """Bytes that the process can still get without swapping; None where the system does not tell.

    What Linux calls available (Documentation/filesystems/proc.rst), or less where the container has a limit: that less
    what it uses, without files that can be dropped from its cache (Documentation/admin-guide/cgroup-v2.rst).
    """
    found = [left for left in (_available(), _left_in(cgroup)) if left is not None]
    return min(found, default=None)


def gpu() -> int | None:
    """Bytes that the process can still get on the current GPU, which it uses already: the driver's and cached ones."""
    try:
        free, _ = torch.cuda.mem_get_info()
        return int(free) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    except RuntimeError:
        return None


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError, IndexError):
        return None


def _left_in(cgroup: Path) -> int | None:
    try:
        limit, used = ((cgroup / f"memory.{name}").read_text(encoding="ascii").strip() for name in ("max", "current"))
        lines = (cgroup / "memory.stat").read_text(encoding="ascii").splitlines()
        cached = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
        return None if limit == "max" else max(0, int(limit) - int(used) + cached)
    except (OSError, ValueError, IndexError):
        return None
