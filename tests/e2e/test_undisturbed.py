"""The user's script runs as under plain python: same numbers, same output, same exit code, same files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Checked, environment, gpudoctor

LOOP = """
import random, sys
import torch, torch.nn as nn
torch.manual_seed(0); random.seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters())
for i in range(20):
    loss = net(torch.randn(32, 8)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(sum(p.double().sum() for p in net.parameters()).item(), torch.rand(1).item(), random.random(), sys.argv[1:])
"""


def plain(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )


def test_numbers_random_state_and_arguments_are_those_of_a_plain_run(check: Callable[..., Checked]) -> None:
    run = check(LOOP, "--run-to-end", script_args=("--lr", "0.1"))
    bare = plain(run.folder, "train.py", "--lr", "0.1")
    assert bare.stdout.strip()
    assert bare.stdout.strip() in run.err
    assert run.diagnosis["run"]["argv"] == ["--lr", "0.1"]


def test_a_compiled_script_compiles_exactly_as_often(check: Callable[..., Checked]) -> None:
    code = LOOP.replace("opt = ", 'cn = torch.compile(net, backend="aot_eager"); opt = ').replace(
        "loss = net(", "loss = cn("
    )
    code += "from torch._dynamo.utils import counters\nprint(dict(counters['frames']), dict(counters['stats']))\n"
    run = check(code, "--run-to-end")
    bare = plain(run.folder, "train.py")
    assert "'total': 1" in bare.stdout
    assert bare.stdout.strip() in run.err


def test_only_data_goes_to_standard_output(check: Callable[..., Checked]) -> None:
    run = check(LOOP, "--run-to-end", script_args=("--lr", "0.1"))
    assert json.loads(run.out)["schema"] == 1
    assert run.err.strip().endswith("report.html")


def test_a_failing_script_gives_exit_code_3_its_own_code_and_what_was_seen(check: Callable[..., Checked]) -> None:
    run = check(LOOP.replace("for i in range(20):", "for i in range(6):") + "raise SystemExit(7)\n")
    assert run.code == 3
    assert run.diagnosis["run"]["script_exit"] == 7
    assert run.diagnosis["run"]["steps"] == 6


def test_a_crash_in_the_fourth_step_still_finds_the_read_of_the_loss(check: Callable[..., Checked]) -> None:
    code = """
import torch, torch.nn as nn
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step, width in enumerate([8, 8, 8, 7]):
    loss = net(torch.randn(4, width)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print("step", step, loss.item())
"""
    run = check(code)
    assert run.code == 3
    assert "mat1 and mat2 shapes cannot be multiplied" in run.err
    assert [finding["where"]["line"] for finding in run.findings("GD301")] == [7]


def test_a_script_that_never_imports_torch_is_inconclusive(check: Callable[..., Checked]) -> None:
    run = check("print('hello')\n")
    assert run.code == 4
    assert run.diagnosis["run"]["steps"] == 0
    assert run.diagnosis["passed"] == []
    assert {rule["reason"] for rule in run.diagnosis["not_measured"]} == {"no training step was seen"}
    assert any("imported torch" in note for note in run.diagnosis["run"]["integrity"])


def test_a_script_without_steps_is_inconclusive_not_clean(check: Callable[..., Checked]) -> None:
    run = check("import torch\nprint(torch.ones(3).sum())\n")
    assert run.code == 4
    assert {"GD301", "GD406", "GD505", "GD601"} <= {rule["rule"] for rule in run.diagnosis["not_measured"]}


def test_a_script_that_leaves_through_os_exit_is_diagnosed(check: Callable[..., Checked]) -> None:
    run = check(LOOP + "sys.stdout.flush()\nimport os\nos._exit(0)\n")
    assert run.code == 0
    assert run.diagnosis["run"]["steps"] == 20


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_script_leaves_a_recording_that_still_knows_its_lines(
    number: int, check: Callable[..., Checked]
) -> None:
    kill = f"sys.stdout.flush()\nimport os\nos.kill(os.getpid(), {int(number)})\n"
    run = check(LOOP.replace("range(20)", "range(40)").replace("opt.step()", "opt.step(); loss.item()") + kill)
    assert run.code == 3
    assert run.diagnosis["run"]["script_exit"] == -number
    assert run.diagnosis["run"]["steps"] > 5
    assert any("killed" in note for note in run.diagnosis["run"]["integrity"])
    assert [finding["where"]["line"] for finding in run.findings("GD301")] == [9]


def test_a_python_profiler_of_the_scripts_own_counts_as_under_plain_python(check: Callable[..., Checked]) -> None:
    code = LOOP.replace(
        "for i in range(20):", "import cProfile\npr = cProfile.Profile(); pr.enable()\nfor i in range(20):"
    )
    code += "pr.disable(); import pstats\nprint('calls', pstats.Stats(pr).total_calls > 100, sys.getprofile())\n"
    run = check(code, "--run-to-end")
    assert "calls True None" in run.err
    assert any("Python profiler" in note for note in run.diagnosis["run"]["integrity"])


def test_pickling_from_main_spawned_workers_and_file_names_work_as_under_python(check: Callable[..., Checked]) -> None:
    code = """
import pickle, sys, os, torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((8,), float(i))

def main():
    assert pickle.loads(pickle.dumps(Squares)) is Squares and Squares.__module__ == "__main__"
    assert sys.path[0] == os.path.dirname(os.path.abspath(__file__)) and sys.argv == ["train.py"]
    net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=1e-5)
    loader = DataLoader(Squares(), batch_size=8, num_workers=1, multiprocessing_context="spawn", persistent_workers=True)
    for epoch in range(3):
        for x in loader:
            opt.zero_grad(); net(x).square().mean().backward(); opt.step()
    print("done", epoch)

if __name__ == "__main__":
    main()
"""
    run = check(code, "--run-to-end")
    assert run.code == 0, run.err
    assert "done 2" in run.err
    assert run.diagnosis["run"]["steps"] == 24
    assert [path.name for path in run.recording.glob("rank*")] == ["rank0"]


def test_a_profiler_of_the_scripts_own_keeps_working(check: Callable[..., Checked]) -> None:
    code = """
import torch, torch.nn as nn
from torch.profiler import ProfilerActivity, profile, schedule
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
seen = []
def ready(p): seen.append(sum(e.key == "aten::addmm" for e in p.key_averages()))
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=3, warmup=1, active=2, repeat=2), on_trace_ready=ready) as p:
    for i in range(25):
        opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step(); p.step()
print("profiles", seen)
"""
    run = check(code, "--run-to-end")
    assert run.code == 0, run.err
    assert "profiles [1, 1]" in run.err
    assert any("own profiler" in note for note in run.diagnosis["run"]["integrity"])


def test_the_run_stops_after_an_epoch_and_skips_the_rest(check: Callable[..., Checked]) -> None:
    code = """
import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=8)
for epoch in range(1000):
    for (x,) in loader:
        opt.zero_grad(); net(x).square().mean().backward(); opt.step()
print("the end was reached")
"""
    run = check(code)
    assert run.code == 0
    assert "the end was reached" not in run.err
    assert run.diagnosis["run"]["stopped"] == "an epoch ended"
    assert run.diagnosis["run"]["script_exit"] is None
    assert 40 < run.diagnosis["run"]["steps"] < 200


def test_a_step_limit_is_kept(check: Callable[..., Checked]) -> None:
    run = check(LOOP.replace("range(20)", "range(100000)"), "--steps", "15")
    assert run.diagnosis["run"]["steps"] == 15


def test_the_git_tree_stays_clean(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    gpudoctor("check", "train.py", cwd=tmp_path)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_a_module_runs_as_with_python_m(tmp_path: Path) -> None:
    package = tmp_path / "proj"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("import torch.nn as nn\ndef build(): return nn.Linear(8, 1)\n")
    (package / "train.py").write_text(
        "import sys, torch\nfrom .model import build\nnet = build(); opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for i in range(15):\n    opt.zero_grad(); loss = net(torch.randn(4, 8)).mean()\n    loss.backward(); opt.step()\n"
        "    last = float(loss)\nprint(__spec__.name, sys.argv[1:])\n"
    )
    run = gpudoctor("check", "--output-format", "json", "-m", "proj.train", "--", "-x", "1", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "proj.train ['-x', '1']" in run.err
    assert [(f["where"]["file"], f["where"]["line"]) for f in run.findings("GD301")] == [("proj/train.py", 7)]


def test_a_folder_that_cannot_take_the_recording_moves_it_to_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / ".gpudoctor").write_text("in the way")  # stops root as well, unlike permissions
    run = gpudoctor("check", "train.py", cwd=tmp_path)
    assert run.code == 0, run.err
    assert (tmp_path / ".gpudoctor").read_text() == "in the way"
    assert Path(run.out.strip().splitlines()[-1]).is_file()


def test_a_loader_of_an_own_class_is_named_where_it_is_built(check: Callable[..., Checked]) -> None:
    code = """import time, torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 120
    def __getitem__(self, i): time.sleep(0.002); return torch.randn(8)
class Loader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
loader = Loader(Slow(), batch_size=4)
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    opt.zero_grad(); net(x).square().mean().backward(); opt.step()
"""
    assert [finding["where"]["line"] for finding in check(code).findings("GD601")] == [9]


SPELLED = """
import torch, torch.nn as nn
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    loss = net(torch.randn(4, 8)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    loss.item()
"""


@pytest.mark.parametrize(
    ("cwd", "words"),
    [
        (".", ("./train.py",)),
        (".", ("sub/../train.py",)),
        ("sub", ("../train.py",)),
        (".", ("link.py",)),
        (".", ("größe.py",)),
        (".", ("with space's.py",)),
        (".", ("--", sys.executable, "./train.py")),
        (".", ("--", sys.executable, "-P", "train.py")),
    ],
)
def test_findings_do_not_depend_on_how_the_script_is_named(cwd: str, words: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("train.py", "größe.py", "with space's.py"):
        (tmp_path / name).write_text(SPELLED)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.py").symlink_to("train.py")
    run = gpudoctor("check", "--output-format", "json", *words, cwd=tmp_path / cwd)
    assert run.code == 0, run.err
    assert [finding["where"]["line"] for finding in run.findings("GD301")] == [6]


def test_a_folder_with_quotes_in_its_name_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted\\ folder'
    folder.mkdir()
    (folder / "train.py").write_text(SPELLED)
    run = gpudoctor("check", "--output-format", "json", "train.py", cwd=folder)
    assert [finding["where"]["line"] for finding in run.findings("GD301")] == [6]


def test_a_script_that_edits_itself_is_shown_as_it_ran(check: Callable[..., Checked]) -> None:
    edit = "import pathlib\ntext = pathlib.Path(__file__).read_text()\npathlib.Path(__file__).write_text('\\n' * 5 + text)\n"
    (finding,) = check(SPELLED + edit).findings("GD301")
    assert [line["text"].strip() for line in finding["excerpt"] if line["culprit"]] == ["loss.item()"]


def test_float64_that_was_asked_for_is_accepted(check: Callable[..., Checked]) -> None:
    # large enough that float64 is most of the step, however busy the machine is
    code = SPELLED.replace("net = ", "torch.set_default_dtype(torch.float64); net = ")
    code = code.replace("Linear(8, 1)", "Linear(512, 512)").replace("randn(4, 8)", "randn(256, 512)")
    findings = check(code).findings("GD406")
    assert all(finding["accepted"] and "train.py:3" in finding["accepted"] for finding in findings)
    assert findings


@pytest.mark.parametrize(
    ("data", "accepted"),
    [
        ("torch.randn(256, 512, dtype=torch.float64)", True),
        ("torch.from_numpy(rng.normal(size=(256, 512)))", False),  # converting the model silences the dtype error
    ],
)
def test_a_model_in_float64_is_intent_where_the_data_is_asked_for_in_it_too(
    data: str, accepted: bool, check: Callable[..., Checked]
) -> None:
    code = "\nimport numpy; rng = numpy.random.default_rng(0)" + SPELLED.replace("torch.randn(4, 8)", data)
    (finding,) = check(code.replace("Linear(8, 1)", "Linear(512, 512).double()")).findings("GD406")
    assert bool(finding["accepted"]) is accepted
