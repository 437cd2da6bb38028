"""Turns raw artifacts into the tables of a Profile: one module a format. Needs neither torch nor a GPU."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.profile import Profile


def open_path(path: Path) -> Profile:
    """The Profile of whatever lies at a path: a recording's folder, or a Kineto trace.

    Raises:
        InputError: nothing is there, or it is neither.
    """
    from gpudoctor.analysis.derive import derived
    from gpudoctor.ingest import recording, trace
    from gpudoctor.recording import is_recording, open_recording

    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        if not is_recording(path):
            raise InputError(
                f"{path}: a folder without recording.json; name a recording (.gpudoctor/latest) or a trace file"
            )
        return derived(recording.load(open_recording(path)))
    return derived(trace.load(path))
