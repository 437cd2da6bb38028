"""Public traces that are read in place: beside the project, not part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "traces"


def shared_trace(name: str) -> Path:
    """The path of a public trace; the test that asks for it skips where the folder is not there."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"needs the public traces in {FOLDER.parent.name}/{FOLDER.name} beside the project: {name}")
    return path
