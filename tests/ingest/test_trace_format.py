"""Our recorder's compile log has the format of the logs that torch itself writes, so that tlparse reads it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.ingest.compile_records import HEAD, decoded, records
from tests.shared_traces import shared_trace

DATA = Path(__file__).parent / "data" / "torch_trace_cold.log"
TYPES = {"frame_id": int, "frame_compile_id": int, "attempt": int, "has_payload": str, "rank": int, "str": list}
FRAME = {"line": int, "name": str, "filename": int}


@pytest.fixture(scope="module")
def ours(recording: Path) -> Path:
    (log,) = (recording / "rank0" / "torch_trace").glob("*.log")
    return log


def public_logs() -> Iterator[Path]:
    yield from sorted(shared_trace("torchtrace").rglob("*.log"))


def check_format(path: Path) -> dict[str, Any]:
    """Checks every line; returns the first metadata of each kind of record."""
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b"" or "shared" in str(path)
    kinds: dict[str, Any] = {}
    for line in lines:
        assert line.startswith(b"\t") or HEAD.match(line) or not line, line[:80]
        if not (head := HEAD.match(line)):
            continue
        metadata = decoded(line[head.end() :])
        for key, kind in TYPES.items():
            assert metadata.get(key) is None or isinstance(metadata[key], kind), (key, metadata[key])
        for frame in (metadata.get("dynamo_start") or {}).get("stack", ()):
            assert all(isinstance(frame[key], kind) for key, kind in FRAME.items())
        for key in metadata:
            kinds.setdefault(key, metadata[key])
    return kinds


def test_every_line_is_a_record_or_a_tab_and_payload(ours: Path) -> None:
    kinds = check_format(ours)
    assert {"dynamo_start", "compilation_metrics", "str", "artifact"} <= set(kinds)


def test_each_payload_has_the_hash_that_its_record_says(ours: Path) -> None:
    hashed = 0
    for metadata, payload in records(ours):
        assert metadata is not None
        assert bool(payload) == ("has_payload" in metadata)
        if payload:
            text = payload.removesuffix("\n").encode()
            assert hashlib.md5(text, usedforsecurity=False).hexdigest() == metadata["has_payload"]
            hashed += 1
    assert hashed


def test_public_logs_have_the_same_kinds_of_values(ours: Path) -> None:
    mine = check_format(ours)
    compared = set()
    for path in public_logs():
        theirs = check_format(path)
        for key in set(mine) & set(theirs):
            if mine[key] is not None and theirs[key] is not None:
                assert type(mine[key]) is type(theirs[key]), (path.name, key)
                compared.add(key)
    assert {"dynamo_start", "compilation_metrics", "str", "frame_id", "has_payload"} <= compared


def test_tlparse_reads_it(ours: Path, tmp_path: Path) -> None:
    tlparse = shutil.which("tlparse")
    if tlparse is None:
        pytest.skip("tlparse is not installed: pip install tlparse")
    for number, log in enumerate((ours, DATA)):
        words = [tlparse, str(log), "-o", str(tmp_path / str(number)), "--no-browser"]
        run = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stderr
        stats = re.search(r"Stats \{([^}]*)\}", run.stdout + run.stderr)
        assert stats is not None
        assert not re.search(r"fail|other_rank", stats[1])
