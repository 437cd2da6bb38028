from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoctor.ingest import compile_state as read
from gpudoctor.recorder import compile_state


def test_a_cache_folder_is_measured_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(b"123")
    (tmp_path / "y").write_bytes(b"4567")
    found = compile_state.cache_folder(str(tmp_path))
    assert found == {"folder": str(tmp_path), "writable": True, "bytes": 7, "files": 2, "complete": True}
    assert compile_state.cache_folder(str(tmp_path), limit=1)["complete"] is False


def test_a_cache_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    place = tmp_path / "none" / "yet"
    found = compile_state.cache_folder(str(place))
    assert (found["writable"], found["bytes"]) == (True, None)
    assert not place.exists()
    (tmp_path / "file").write_text("")
    assert compile_state.cache_folder(str(tmp_path / "file" / "x"))["writable"] is False


SCRIPT = """
import sys
from pathlib import Path
import torch
from gpudoctor.recorder import compile_state
compile_state.save(Path(sys.argv[1]))
assert "torch._dynamo" not in sys.modules
@torch.compile(backend="{backend}")
def f(x):
    torch._dynamo.graph_break()
    return x + 1
f(torch.ones(2))
if len(sys.argv) > 2:
    compile_state.save(Path(sys.argv[1]))
"""


def _run(tmp_path: Path, *more: str, backend: str = "eager", **environment: str) -> None:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), **environment}
    script = SCRIPT.format(backend=backend)
    subprocess.run([sys.executable, "-c", script, str(tmp_path), *more], check=True, env=env, timeout=240)


def test_nothing_is_written_and_nothing_imported_while_dynamo_is_not_loaded(tmp_path: Path) -> None:
    _run(tmp_path)
    assert not (tmp_path / compile_state.FILE).exists()


@pytest.mark.parametrize("disabled", [False, True])
def test_counters_and_caches_are_those_of_the_process(tmp_path: Path, disabled: bool) -> None:
    environment = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"} if disabled else {}
    _run(tmp_path, "end", backend="inductor", **environment)
    state = json.loads((tmp_path / compile_state.FILE).read_text())
    counts = {(row["group"], row["name"]): row["count"] for row in read.counters(state)}
    assert counts["frames", "total"] >= 1
    assert any(group == "graph_break" for group, _ in counts)
    rows = {row["kind"]: row for row in read.caches(state)}
    assert rows["fx_graph"]["enabled"] is not disabled
    assert rows["aot_autograd"]["enabled"] is not disabled
    assert rows["fx_graph"]["folder"] == str(tmp_path / "cache")


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("a / ext4 rw 0 0\nb /data nfs4 rw 0 0\nc /data/local xfs rw 0 0\nbroken\n")
    found = [compile_state.filesystem(place, mounts) for place in ("/data/x", "/data/local/x", "/database")]
    assert found == ["nfs4", "xfs", "ext4"]
    assert compile_state.filesystem("/x", tmp_path / "none") is None
