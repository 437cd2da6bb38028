"""Reads what torch.compile's counters and caches were at the end of a run, as the recorder wrote it."""

from __future__ import annotations

from typing import Any

FILE = "compile.json"


def counters(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of `compile_counters`."""
    return [
        {"group": group, "name": name, "count": int(count)}
        for group, counts in sorted(state.get("counters", {}).items())
        for name, count in sorted(counts.items())
    ]


def caches(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of `cache_state`: one a kind; those that lie in one folder have its size in common."""
    names = ("folder", "filesystem", "writable", "bytes", "files", "complete")
    folder = {name: state.get("folder", {}).get(name) for name in names}
    return [{"kind": kind, "enabled": enabled, **folder} for kind, enabled in sorted(state.get("enabled", {}).items())]
