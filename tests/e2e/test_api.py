"""`gpudoctor.check`, `record` and `analyze` from Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import Checked, environment

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


MARKED = """import torch, gpudoctor
gpudoctor.step()  # nothing records: nothing happens
w = torch.zeros(8)
for i in range({steps}):
    noise = torch.randn(16, 8)  # evolution strategies: no backward, no optimizer, no loader
    score = -(w + noise).square().sum(1)
    w += 0.01 * (noise * score[:, None]).mean(0)
    gpudoctor.step()
"""


def test_steps_that_the_script_marks_are_taken_as_they_are(check: Callable[..., Checked], tmp_path: Path) -> None:
    run = check(MARKED.format(steps=25))
    assert run.code == 0, run.err
    # the first mark stands in front of the loop
    assert (run.diagnosis["run"]["steps"], run.diagnosis["run"]["step_source"]) == (26, "call")
    assert {"bare", "detail", "light"} <= {time["observation"] for time in run.diagnosis["step_times"]}
    (tmp_path / "script.py").write_text(MARKED.format(steps=3))
    bare = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment(), check=False)
    assert bare.returncode == 0
    assert not (tmp_path / ".gpudoctor").exists()


def test_marks_win_over_optimizer_steps_and_count_for_the_limit(check: Callable[..., Checked]) -> None:
    run = check(
        """import torch, torch.nn as nn, gpudoctor
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(1000):
    for k in range(3):
        opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()
    gpudoctor.step()
""",
        "--steps",
        "20",
    )
    assert run.code == 0, run.err
    assert (run.diagnosis["run"]["steps"], run.diagnosis["run"]["step_source"]) == (20, "call")
    assert run.diagnosis["run"]["stopped"] == "20 steps were seen (--steps)"


def test_a_script_that_records_a_block_itself_can_be_checked(check: Callable[..., Checked]) -> None:
    run = check(
        """import torch, torch.nn as nn, gpudoctor
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()
for i in range(4): step()
with gpudoctor.record() as session:
    for i in range(20): step()
print("block", session.diagnosis.run.steps, [note for note in session.diagnosis.run.integrity if "unstable" not in note])
for i in range(20): step()
""",
        "--run-to-end",
    )
    assert run.code == 0, run.err
    assert "block 20 []" in run.err  # other work on the machine may make the timing unstable
    assert run.diagnosis["run"]["steps"] == 24
    assert [note for note in run.diagnosis["run"]["integrity"] if "unstable" not in note] == [
        "the script recorded a block itself (gpudoctor.record or check): the block was not watched"
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
