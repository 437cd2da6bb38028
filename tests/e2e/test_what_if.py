"""What torch.compile would make of a model that nobody compiles, seen after the run and without disturbing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.recorder import what_if_result
from tests.e2e.conftest import Checked, checker, environment, gpudoctor, hears_ctrl_c

HEAD = """import sys, time
import torch, torch.nn as nn
torch.manual_seed(0)
"""
LOOP = """
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(100000):
    loss = net(torch.randn(8, 16)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
"""
STEPS = ("--steps", "16")

BREAKS = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(16, 32); self.b = nn.Linear(32, 1); self.calls = 0
    def forward(self, x, scale, extra=None):
        h = self.a(x).relu() * scale + extra["shift"][0]
        if h.sum() > -1e9:
            h = h * 2
        print("forward ran")
        return self.b(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(100000):
    shift = torch.zeros(32)
    loss = net(torch.randn(8, 16), scale=0.5, extra={"shift": [shift, None]}).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(i, loss.item(), torch.rand(1).item())
"""
)

HOSTILE = (
    HEAD
    + """
import atexit, logging, os, random, signal
random.seed(0)
def append(name, text):  # a file that stays open would put the stop off
    with open(name, "a") as file: file.write(text)
class ToFile(logging.Handler):
    def emit(self, record): append("run.log", record.getMessage() + "\\n")
logging.basicConfig(handlers=[ToFile()], level=logging.INFO)
class Tee:
    def __init__(self, stream): self.stream = stream
    def write(self, text): self.stream.write(text); append("tee.txt", text)
    def flush(self): self.stream.flush()
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(16, 1); self.drop = nn.Dropout(0.5); self.calls = 0
    def forward(self, x):
        self.calls += 1
        print("call", self.calls)
        sys.stderr.write(f"error stream {self.calls}\\n")
        logging.info("call %d", self.calls)
        append("counted.txt", f"{self.calls}\\n")
        os.rename("counted.txt", "counted.tmp"); os.rename("counted.tmp", "counted.txt")
        return self.a(self.drop(x))
sys.stdout = Tee(sys.stdout)
atexit.register(lambda: open("atexit.txt", "w").close())
signal.signal(signal.SIGTERM, lambda *_: open("terminated.txt", "w").close())
net = Net(); opt = torch.optim.Adam(net.parameters())
try:
    for i in range(100000):
        loss = net(torch.randn(8, 16)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
        print(i, loss.item(), random.random())
finally:
    open("finally.txt", "w").close()
"""
)


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checked]:
    """With the what-if, as users run it."""
    return checker(tmp_path_factory)


def result(run: Checked) -> dict[str, Any]:
    (row,) = run.table("what_if").to_dict("records")
    return dict(row)


def reason(run: Checked) -> str:
    assert not run.profile.measured("what_if")
    return run.profile.why_not("what_if")[0]


def test_a_model_with_keywords_is_traced_and_its_breaks_are_on_their_lines(check: Callable[..., Checked]) -> None:
    run = check(BREAKS, *STEPS)
    breaks = run.table("what_if_breaks")
    assert list(zip(breaks["file"], breaks["line"], breaks["function"], strict=True)) == [
        ("train.py", 10, "forward"),
        ("train.py", 12, "forward"),
    ]
    assert "Data-dependent branching" in breaks["reason"][0]
    row = result(run)
    assert (row["module"], row["file"], row["line"]) == ("Net", "train.py", 18)
    assert (row["graphs"], row["breaks"], row["modules"], row["remade_inputs"]) == (3, 2, 1, 0)
    assert row["ops"] == run.table("what_if_graphs")["ops"].sum() > 5
    assert row["guards"] > 0
    assert run.table("compilations").empty
    assert run.table("graph_breaks").empty


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def shown(run: Checked) -> list[str]:
    return [line for line in run.err.splitlines() if not line.startswith(".gpudoctor/")]


@pytest.mark.parametrize("source", [BREAKS, HOSTILE], ids=["prints", "writes everywhere"])
def test_output_files_and_exit_code_are_those_of_a_run_without_it(source: str, check: Callable[..., Checked]) -> None:
    run, without = check(source, *STEPS), check(source, *STEPS, "--no-what-if")
    assert run.code == without.code == 0
    assert shown(run) == shown(without)
    assert files(run.folder) == files(without.folder)
    assert run.diagnosis["run"]["steps"] == without.diagnosis["run"]["steps"] == 16
    assert reason(without) == "the tracing was switched off (--no-what-if)"


def test_a_model_that_writes_files_is_not_traced_and_that_is_said(check: Callable[..., Checked]) -> None:
    said = reason(check(HOSTILE, *STEPS))
    assert "could not be traced: PermissionError" in said
    assert "counted.txt" in said


def test_a_model_that_raises_under_tracing_is_not_measured(check: Callable[..., Checked]) -> None:
    code = HEAD + (
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        if sys.stdout.name == '/dev/null': raise SystemExit(5)\n"
        "        return super().forward(x)\n"
        "net = Net(16, 1)\n"
    )
    run = check(code + LOOP, *STEPS)
    assert run.code == 0
    assert reason(run) == "the model could not be traced: SystemExit: 5"


SLEEPY = (
    HEAD
    + """
class Net(nn.Linear):
    def forward(self, x):
        if sys.stdout.name == "/dev/null": time.sleep(600)
        return super().forward(x)
net = Net(16, 1)
"""
    + LOOP
)


def test_a_model_that_never_returns_is_given_up_at_the_limit(check: Callable[..., Checked]) -> None:
    run = check(SLEEPY, *STEPS, "--what-if-limit", "4")
    assert run.code == 0
    assert reason(run) == "the time limit of 4 s was reached"
    assert run.diagnosis["run"]["script_exit"] is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_recording_is_diagnosed(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLEEPY)
    words = [sys.executable, "-m", "gpudoctor", "check", "--output-format", "json", *STEPS, "train.py"]
    child = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_ctrl_c,
    )
    latest = tmp_path / ".gpudoctor" / "latest"
    while child.poll() is None and not what_if_result.interrupted(latest):
        os.sched_yield()  # it sleeps for longer than any test: there is no moment to be missed
    child.send_signal(number)
    out, err = child.communicate(timeout=120)
    run = Checked(child.returncode, out, err, tmp_path)
    assert run.code == 0, err
    assert json.loads(out)["run"]["steps"] == 16
    assert reason(run) == "a signal ended the process while the model was traced"
    found = what_if_result.read(run.recording / "rank0")
    assert found is not None
    assert found.scratch is not None
    assert not Path(found.scratch).exists()


def test_of_several_modules_the_one_with_most_time_is_traced(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
class Generator(nn.Sequential): pass
class Critic(nn.Sequential): pass
G = Generator(*[nn.Linear(256, 256) for _ in range(24)]); D = Critic(nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 1))
og, od = torch.optim.Adam(G.parameters()), torch.optim.SGD(D.parameters(), lr=0.1)
for i in range(100000):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        od.zero_grad(); loss = D(G(torch.randn(64, 256)).detach()).mean()
    loss.backward(); od.step()
    og.zero_grad(); loss = D(G(torch.randn(64, 256))).mean(); loss.backward(); og.step()
"""
    row = result(check(code, "--steps", "20"))
    assert (row["module"], row["modules"], row["graphs"], row["breaks"], row["ops"]) == ("Generator", 2, 1, 0, 24)
    assert 0.5 < row["forward_share"] < 1


def test_a_trainer_class_is_traced_by_the_module_that_it_calls(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
import torch._dynamo
from dataclasses import dataclass
@dataclass
class Batch:
    tokens: torch.Tensor
    images: torch.Tensor
class Model(nn.Module):
    def __init__(self):
        super().__init__(); self.table = nn.Embedding(50, 8); self.out = nn.Linear(8, 1)
    def forward(self, batch: Batch):
        return self.out(self.table(batch.tokens).mean(1)) + batch.images.mean()
class Lit(nn.Module):
    def __init__(self):
        super().__init__(); self.model = Model()
    def training_step(self, batch):
        return self.model(batch).square().mean()
class Trainer:
    def __init__(self, lit):
        self.lit, self.opt = lit, torch.optim.AdamW(lit.parameters())
    def fit(self):
        while True:
            loss = self.lit.training_step(Batch(torch.randint(50, (4, 6)), torch.randn(4, 3, 512, 512)))
            self.opt.zero_grad(); loss.backward(); self.opt.step()
Trainer(Lit()).fit()
"""
    row = result(check(code, *STEPS))
    assert (row["module"], row["line"], row["function"]) == ("Model", 17, "Lit.training_step")
    assert row["remade_inputs"] == 1
    assert (row["graphs"], row["breaks"]) == (1, 0)


def test_an_inference_loop_is_traced_in_its_modes(check: Callable[..., Checked]) -> None:
    code = """import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(16, 1)
    def forward(self, x):
        if torch.is_grad_enabled(): print("with gradients")
        return self.a(x)
net = Net().eval()
with torch.inference_mode():
    for epoch in range(100000):
        for (x,) in DataLoader(TensorDataset(torch.randn(160, 16)), batch_size=8):
            net(x)
"""
    row = result(check(code, *STEPS))
    assert (row["module"], row["graphs"], row["breaks"]) == ("Net", 1, 0)


@pytest.mark.parametrize(
    ("code", "options", "expected"),
    [
        ("net = torch.jit.script(nn.Linear(16, 1))\n" + LOOP, STEPS, "the model is a ScriptModule"),
        (
            "net = nn.Linear(16, 1); unused = torch.compile(net, backend='eager')\n" + LOOP,
            STEPS,
            "the script compiles already",
        ),
        ("net = nn.Linear(16, 1)\n" + LOOP.replace("100000", "14"), ("--run-to-end",), "--run-to-end"),
        ("net = nn.Linear(16, 1)\n" + LOOP.replace("100000", "14"), (), "the script ended by itself"),
        ("net = nn.Linear(16, 1)\n" + LOOP, (*STEPS, "--stop", "raise"), "--stop raise"),
        (
            "w = torch.zeros(16, 1, requires_grad=True)\nclass Plain:\n    def parameters(self): return [w]\n"
            "    def __call__(self, x): return x @ w\nnet = Plain()\n" + LOOP,
            STEPS,
            "no nn.Module was seen",
        ),
        (
            "class Slots:\n    __slots__ = ('x',)\nclass Net(nn.Linear):\n"
            "    def forward(self, slots): return super().forward(slots.x)\ninner = Net(16, 1)\n"
            "def call(x):\n    s = Slots(); s.x = x; return inner(s)\nnet = call; net.parameters = inner.parameters\n"
            + LOOP,
            STEPS,
            "the model could not be captured: its input has an object of class Slots",
        ),
        (
            "class Net(nn.Linear):\n    @torch.compiler.disable\n    def forward(self, x): return super().forward(x)\n"
            "net = Net(16, 1)\n" + LOOP,
            STEPS,
            "torch.compile would make no graph of Net",
        ),
    ],
    ids=["script module", "compiled", "run to end", "ended", "stop raise", "no module", "input", "no graph"],
)
def test_what_is_not_measured_says_why(
    code: str, options: tuple[str, ...], expected: str, check: Callable[..., Checked]
) -> None:
    run = check(HEAD + code, *options)
    assert run.code == 0, run.err
    assert expected in reason(run)


def test_inductor_counts_kernels_on_demand(check: Callable[..., Checked]) -> None:
    code = HEAD + (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__(); self.a = nn.Linear(16, 16)\n"
        "    def forward(self, x):\n        return (self.a(x).relu() * 2 + 1).sigmoid().sum(1)\nnet = Net()\n"
    )
    row = result(check(code + LOOP, *STEPS, "--what-if=inductor"))
    assert row["inductor_failure"] is None or row["inductor_failure"] != row["inductor_failure"]
    assert (row["eager_kernels"], row["kernels"], row["extern_calls"]) == (6, 1, 1)


def test_it_leaves_nothing_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (tmp_path / "train.py").write_text(HEAD + "net = nn.Linear(16, 1)\n" + LOOP)
    gpudoctor("check", *STEPS, "--no-what-if", "train.py", cwd=tmp_path)
    before = sorted(temporary.rglob("*"))
    run = gpudoctor("check", *STEPS, "train.py", cwd=tmp_path)
    assert result(run)["graphs"] == 1
    assert sorted(temporary.rglob("*")) == before
