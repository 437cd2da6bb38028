"""A structured compile log on its own (a TORCH_TRACE file) → Profile: what was compiled, without the run around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis.derive import derived
from gpudoctor.errors import InputError
from gpudoctor.ingest import compile_context, compile_log
from gpudoctor.ingest.callers import is_users
from gpudoctor.ingest.ranks import named_rank
from gpudoctor.ingest.watch import WatchLog
from gpudoctor.profile import Profile
from gpudoctor.userfiles import UserFiles

NO_STEPS = "a compile log has no step times"
_NOTHING_ELSE = "a compile log tells only what was compiled"
_NO_COMPILATION = "nothing was compiled while the log was written"
_TABLES = ("compilations", "graph_breaks", "recompiles", "cache")
_TORCH = re.compile(
    r"/torch/(?:_\w+|nn/(?:modules|parallel|attention|utils|functional\.py)|optim/\w+\.py|autograd|distributed|testing"
    r"|utils/(?:data|checkpoint\.py|_\w+)|functional\.py|fx|cuda|amp|compiler|jit)(?:/|$|\.py$)"
)
"""Folders of torch itself, where it was built from its sources and lies in no site-packages."""


class FilesElsewhere(UserFiles):
    """The user's files on a machine that is not this one, known by their names only."""

    def __init__(self) -> None:
        super().__init__("/", (), here=False)

    def name(self, filename: str) -> str | None:
        """The file's own name where it can be the user's; None for torch's and other libraries' files."""
        shown = filename.replace("\\", "/")
        return shown if is_users(shown) and not _TORCH.search(shown) else None


def load(path: Path) -> Profile:
    """The Profile of a compile log.

    Raises:
        InputError: the file cannot be read, or has no record of a compile log in it.
    """
    try:
        read = compile_log.read([path], FilesElsewhere(), zero_unix_ns=0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not read.records:
        what = "is empty" if not read.damaged else "has no record of one in it"
        raise InputError(f"{path}: {what}; is it a compile log (a file that TORCH_TRACE wrote)?")
    _from_zero(read.compilations)
    compile_context.join(read, WatchLog(), [], [], None)
    missing = dict.fromkeys(schema.TABLES, _NOTHING_ELSE) | {"steps": NO_STEPS}
    tables: dict[str, Sequence[dict[str, Any]]] = {name: getattr(read, name) for name in _TABLES}
    tables |= {"generated_kernels": read.code.kernels, "extern_calls": read.code.calls}
    if not any(tables.values()):
        return Profile({}, _facts(path, read), {}, missing | dict.fromkeys(_TABLES, _NO_COMPILATION))
    for name in tables:
        del missing[name]
    frames = {name: schema.frame(name, rows) for name, rows in tables.items()}
    return derived(Profile(frames, _facts(path, read), {}, missing))


def the_one_in(folder: Path, logs: Sequence[Path]) -> Path:
    """The log that a folder means.

    Raises:
        InputError: it has several.
    """
    if len(logs) > 1:
        names = ", ".join(str(log.relative_to(folder)) for log in logs[:4])
        more = f" and {len(logs) - 4} more" if len(logs) > 4 else ""
        raise InputError(f"{folder}: {len(logs)} compile logs in it, name one: {names}{more}")
    return logs[0]


def _from_zero(compilations: Sequence[dict[str, Any]]) -> None:
    """Counts times from the first compilation's begin."""
    begun = [row["start_ns"] for row in compilations if row["start_ns"] is not None]
    for row in compilations:
        if row["start_ns"] is not None:
            row["start_ns"] -= min(begun)


def _facts(path: Path, read: compile_log.CompileTables) -> dict[str, Any]:
    named = named_rank(path)
    return {
        "script": path.name,
        "torch": read.versions.get("torch"),
        "gpu": False,
        "environment": dict(sorted(read.versions.items())),
        "steps": 0,
        "stopped": "the log ended",
        "notes": [compile_log.damage(read.damaged)] if read.damaged else [],
        "rank": read.rank if named is None else named,
        "log": {"records": read.records, "damaged": read.damaged},
    }
