"""Turns raw artifacts into the tables of a Profile: one module a format. Needs neither torch nor a GPU."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.profile import Profile


def open_path(path: Path) -> Profile:
    """The Profile of whatever lies at a path: a recording's folder, a Kineto trace, a compile log (TORCH_TRACE), or an
    allocator snapshot.

    A folder with one compile log in it stands for that log.

    Raises:
        InputError: nothing is there, or it is none of them.
    """
    from gpudoctor.analysis.derive import derived
    from gpudoctor.ingest import ranks, recording, torch_trace, trace
    from gpudoctor.ingest.snapshot import load as snapshot
    from gpudoctor.ingest.snapshot.contents import is_snapshot
    from gpudoctor.recording import is_recording, open_recording

    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        if not is_recording(path) and (logs := ranks.logs(path)):
            return torch_trace.load(torch_trace.the_one_in(path, logs))
        if not is_recording(path):
            raise InputError(
                f"{path}: a folder without recording.json; name a recording (.gpudoctor/latest), a trace or compile log"
            )
        return recording.load(open_recording(path))
    if is_snapshot(path):
        return snapshot.load(path)
    return torch_trace.load(path) if ranks.is_log(path) else derived(trace.load(path))
