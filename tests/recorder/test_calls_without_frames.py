"""Hooks that the interpreter itself calls: at exit, for a signal, in the middle of another hook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import environment

SCRIPT = """
import atexit, gc, sys, torch
net = torch.nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
gc.set_threshold(1, 1, 1)  # collections begin wherever anything is allocated
for step in range(40):
    opt.zero_grad(); net(torch.randn(2, 4)).square().mean().backward(); opt.step()
print("trained")
atexit.register(gc.collect)
atexit.register(torch.cuda.empty_cache)
atexit.register(sys.stderr.write, "written at exit\\n")
atexit.register(lambda: [][1])
"""


def test_what_the_interpreter_writes_and_calls_without_a_frame_is_as_in_the_bare_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    runs = [
        subprocess.run(
            [sys.executable, *before, "script.py"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        for before in ([], ["-m", "gpudoctor", "check", "--run-to-end", "--output-format", "json"])
    ]
    bare, recorded = (
        sorted(line for line in run.stderr.splitlines() if "report.html" not in line and " at 0x" not in line)
        for run in runs
    )
    assert "IndexError: list index out of range" in bare
    assert recorded == sorted([*bare, "trained"])  # under json the script's own output goes to stderr
    assert runs[1].returncode == 0
    integrity = json.loads(runs[1].stdout)["run"]["integrity"]
    assert [note for note in integrity if "unstable" not in note] == []
