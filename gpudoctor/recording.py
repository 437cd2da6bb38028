"""The Recording: raw artifacts of one run in a folder. What is in it, where it goes, how it is opened.

.gpudoctor/
  .gitignore                 ignores the whole folder
  latest                     symbolic link to the newest recording
  20261130-143200-train/
    recording.json           command, versions, exit code, ranks
    rank0/                   one folder a process: watch.jsonl, trace.N.label.json, torch_trace/, memory.pickle (a
                             snapshot of the CUDA allocator, where run.json names it), …
    profile/                 Parquet cache of the tables; deletable
    report.html  diagnosis.json
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError, RecordingError

SCHEMA = 1
MANIFEST = "recording.json"
HOME = ".gpudoctor"
MEMORY_FILE = "memory.pickle"
BEGUN = "begun.json"
"""In a process's folder: what is known when its recording begins."""


@dataclass(frozen=True, slots=True)
class Recording:
    """An opened recording.

    Attributes:
        path: its folder.
        manifest: content of recording.json.
    """

    path: Path
    manifest: dict[str, Any]

    @property
    def ranks(self) -> list[Path]:
        """The folders of the recorded processes that saw anything, rank 0 first."""
        found = (p for p in self.path.glob("rank*") if (p / BEGUN).is_file())
        return sorted(found, key=lambda p: int(p.name.removeprefix("rank")))

    def save(self) -> None:
        """Writes the manifest."""
        text = json.dumps({"schema": SCHEMA, **self.manifest}, indent=2)
        draft = self.path / f".{MANIFEST}.{os.getpid()}"
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(self.path / MANIFEST)


def is_recording(path: Path) -> bool:
    """Whether a path is the folder of a recording."""
    return (path / MANIFEST).is_file()


def open_recording(path: Path) -> Recording:
    """Opens a recording's folder.

    Raises:
        InputError: it is none, or one of another schema.
    """
    manifest = path / MANIFEST
    try:
        content = dict(json.loads(manifest.read_text(encoding="utf-8")))
        schema = content.pop("schema")
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a recording ({MANIFEST} is missing or damaged)") from None
    if schema != SCHEMA:
        raise InputError(f"{path}: recording schema {schema!r} is not {SCHEMA}; record the run again")
    return Recording(path, content)


def create(cwd: Path, label: str, manifest: dict[str, Any]) -> Recording:
    """Makes the folder of a new recording under `cwd/.gpudoctor`, or under the temporary folder when that fails.

    Args:
        cwd: the user's working folder.
        label: script or module name; only its letters and digits go into the folder's name.
        manifest: what is known so far.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_]+', '_', label).strip('_')[:40] or 'run'}"
    error: OSError | None = None
    for home in (cwd / HOME, Path(tempfile.gettempdir()) / f"gpudoctor-{os.getuid()}"):
        try:
            home.mkdir(parents=True, exist_ok=True)
            (home / ".gitignore").write_text("*\n", encoding="utf-8")
            folder = _unique(home, name)
        except OSError as failure:
            error = failure
            continue
        _point_latest(home, folder)
        recording = Recording(folder, manifest)
        recording.save()
        return recording
    raise RecordingError(f"no folder for the recording: neither {cwd} nor the temporary folder is writable ({error})")


def discard(recording: Recording) -> None:
    """Removes a recording in which nothing ran; `latest` points at the newest of the others again."""
    home = recording.path.parent
    shutil.rmtree(recording.path, ignore_errors=True)
    others = [folder for folder in home.iterdir() if not folder.is_symlink() and is_recording(folder)]
    if others:
        _point_latest(home, max(others, key=lambda folder: folder.stat().st_mtime_ns))
    else:
        (home / "latest").unlink(missing_ok=True)


def join(cwd: Path, name: str, manifest: dict[str, Any]) -> Recording:
    """Makes or opens a recording that several launchers share (one a rank), by its name.

    Args:
        cwd: the user's working folder.
        name: the name they all derive, e.g. from the launcher's run id.
        manifest: what is known so far; kept by the first.
    """
    home = cwd / HOME
    folder = home / re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (home / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"no folder for the recording: {cwd} is not writable ({error})") from None
    recording = Recording(folder, manifest)
    if not is_recording(folder):
        recording.save()
        _point_latest(home, folder)
    return recording


def _unique(home: Path, name: str) -> Path:
    for number in range(1, 1000):
        folder = home / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise RecordingError(f"{home}: too many recordings named {name}; delete old ones")


def _point_latest(home: Path, folder: Path) -> None:
    link, new = home / "latest", home / f".latest-{os.getpid()}"
    with contextlib.suppress(OSError):  # a file system without links has no `latest`; nothing else needs it
        new.symlink_to(folder.name)
        new.replace(link)


def part(path: Path, default: Any) -> Any:
    """A JSON part's content, or the default when the process was killed before it was written whole."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default
    return content if default is None or isinstance(content, type(default)) else default
