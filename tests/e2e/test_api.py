"""`gpudoctor.check`, `record` and `analyze` from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import environment

SETUP = """
import torch, torch.nn as nn
import gpudoctor
from gpudoctor.errors import GpuDoctorError, UsageError
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = net(torch.randn(4, 8)).square().mean()
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
    return loss.item()
"""


def python(code: str, folder: Path) -> str:
    (folder / "script.py").write_text(SETUP + code)
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_check_calls_the_function_as_often_as_asked_and_diagnoses_it(tmp_path: Path) -> None:
    out = python(
        """
calls = []
d = gpudoctor.check(lambda: calls.append(step()), steps=20)
print(len(calls), d.run.steps, d.run.step_source, d.run.step_ns is not None)
print(sorted((f.rule, f.where.line) for f in d.findings))
""",
        tmp_path,
    )
    assert out.splitlines() == ["20 20 call True", "[('GD301', 11), ('GD505', 8)]"]


def test_record_finds_the_steps_of_a_block_and_leaves_nothing_behind(tmp_path: Path) -> None:
    out = python(
        """
from torch.utils.data import DataLoader
before = (torch.compile, torch.autograd._engine_run_backward, DataLoader.__init__, torch.amp.GradScaler._maybe_opt_step)
with gpudoctor.record() as session:
    try: session.diagnosis
    except GpuDoctorError as error: print(error)
    for i in range(20): step()
print(session.diagnosis.run.steps, session.diagnosis.run.step_source)
print(before == (torch.compile, torch.autograd._engine_run_backward, DataLoader.__init__, torch.amp.GradScaler._maybe_opt_step))
with gpudoctor.record() as again:
    for i in range(12): step()
print(again.diagnosis.run.steps, gpudoctor.analyze(again.recording.path) == again.diagnosis)
""",
        tmp_path,
    )
    assert out.splitlines() == [
        "the recorded block still runs; ask for the diagnosis after it",
        "20 optimizer",
        "True",
        "12 True",
    ]


def test_misuse_is_told(tmp_path: Path) -> None:
    out = python(
        """
for call in (lambda: gpudoctor.check(step, steps=0), lambda: gpudoctor.check(lambda: gpudoctor.check(step))):
    try: call()
    except UsageError as error: print(error)
""",
        tmp_path,
    )
    assert "steps=0" in out
    assert "running already" in out


def test_an_error_in_the_function_reaches_the_caller_and_the_next_check_works(tmp_path: Path) -> None:
    out = python(
        """
try: gpudoctor.check(lambda: 1 / 0)
except ZeroDivisionError: print("reached")
print(gpudoctor.check(step, steps=12).run.steps)
""",
        tmp_path,
    )
    assert out.splitlines() == ["reached", "12"]
