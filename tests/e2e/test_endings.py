"""However a run ends, files are whole, no process is left, and what was recorded can be read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Checked, environment, gpudoctor, hears_ctrl_c

TRAIN = """
import sys, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=8{loader})
{before}
for epoch in range(100000):
    for step, (x,) in enumerate(loader):
        opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); opt.step()
        {each}
{after}
"""


def train(before: str = "", each: str = "pass", after: str = "", loader: str = "") -> str:
    return TRAIN.format(before=before, each=each, after=after, loader=loader)


def test_a_log_that_stays_open_has_a_whole_row_for_each_step(check: Callable[..., Checked]) -> None:
    run = check(train('log = open("log.csv", "w"); log.write("epoch,step\\n")', 'log.write(f"{epoch},{step}\\n")'))
    assert run.diagnosis["run"]["script_exit"] is None
    rows = (run.folder / "log.csv").read_text().splitlines()
    assert all(row.count(",") == 1 for row in rows)
    # the last step's row is written after its optimizer step, where the run was stopped
    assert len(rows) - 1 == run.diagnosis["run"]["steps"] - 1


def test_a_checkpoint_written_each_step_is_never_cut(check: Callable[..., Checked]) -> None:
    run = check(
        train(each='torch.save({"step": step, "net": net.state_dict(), "pad": torch.zeros(250_000)}, "last.pt")')
    )
    assert run.diagnosis["run"]["script_exit"] is None
    loaded = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.load('last.pt')['pad'].shape[0])"],
        cwd=run.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "250000"


SAVES_IN_FINALLY = """
import torch, torch.nn as nn, atexit, pathlib
from torch.utils.data import DataLoader, TensorDataset
atexit.register(lambda: pathlib.Path("atexit.txt").write_text("ran"))
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=1e-3)
pathlib.Path("ckpt.txt").write_text("good")
try:
    for epoch in range(100000):
        for (x,) in DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=8):
            opt.zero_grad(); net(x).square().mean().backward(); opt.step()
finally:
    pathlib.Path("ckpt.txt").write_text("half trained")
"""


def test_a_finally_that_saves_does_not_overwrite_a_good_checkpoint(check: Callable[..., Checked]) -> None:
    run = check(SAVES_IN_FINALLY)
    assert run.code == 0
    assert (run.folder / "ckpt.txt").read_text() == "good"
    assert not (run.folder / "atexit.txt").exists()


def test_stopping_by_raise_runs_finally_and_atexit(check: Callable[..., Checked]) -> None:
    run = check(SAVES_IN_FINALLY, "--stop", "raise")
    assert run.code == 0
    assert (run.folder / "ckpt.txt").read_text() == "half trained"
    assert (run.folder / "atexit.txt").read_text() == "ran"
    assert run.diagnosis["run"]["stopped"] == "an epoch ended"


def test_warm_up_steps_are_not_profiled(check: Callable[..., Checked]) -> None:
    run = check(train(), "--warmup", "15")
    times = run.diagnosis["step_times"]
    assert {time["observation"] for time in times[:15]} == {"bare"}
    assert {"detail", "light"} <= {time["observation"] for time in times}


def children_of(pid: int) -> list[int]:
    """Processes whose parent is `pid`, and theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *children_of(int(entry.name))]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_script_and_leaves_a_recording_and_no_process(number: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        train(
            'import pathlib, os; pathlib.Path("pid.txt").write_text(str(os.getpid()))',
            'step == 30 and epoch == 0 and pathlib.Path("go.txt").write_text("go")',
            loader=", num_workers=1, persistent_workers=True",
        )
    )
    parent = subprocess.Popen(
        [sys.executable, "-m", "gpudoctor", "check", "--run-to-end", "--output-format", "json", "train.py"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_ctrl_c,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "go.txt").exists() and time.monotonic() < deadline and parent.poll() is None:
        os.sched_yield()
    family = children_of(parent.pid)
    assert len(family) >= 2  # the script and its loader worker
    parent.send_signal(number)
    out, err = parent.communicate(timeout=120)
    assert parent.returncode == 3, err
    found = json.loads(out)
    # Ctrl-C lets the script end in order; SIGTERM ends it at once, and up to 0.2 s of steps are not written yet
    assert found["run"]["steps"] >= (30 if number == signal.SIGINT else 1)
    assert found["run"]["script_exit"] != 0
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < deadline:
        os.sched_yield()
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]


def left_in(folder: Path) -> list[str]:
    """Commands of the processes that still run in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found


WITH_WORKER = ", num_workers=1, persistent_workers=True"
CHILDREN = "pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(5)", 5),
        ("ctypes.string_at(0)", -signal.SIGSEGV),
        (f"[os.kill(int(pid), signal.SIGKILL) for pid in {CHILDREN}]", 1),  # the loader's worker
    ],
)
def test_a_hard_end_leaves_a_recording_and_no_process(end: str, status: int, check: Callable[..., Checked]) -> None:
    run = check(train("import ctypes, os, pathlib, signal", f"step == 30 and epoch == 0 and {end}", loader=WITH_WORKER))
    assert run.code == 3
    assert run.diagnosis["run"]["script_exit"] == status
    assert run.diagnosis["run"]["steps"] >= 1
    assert run.diagnosis["passed"]
    assert left_in(run.folder) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_killed_gpudoctor_takes_the_script_with_it(tmp_path: Path) -> None:
    kill = "step == 30 and epoch == 0 and os.kill(os.getppid(), signal.SIGKILL)"
    (tmp_path / "train.py").write_text(train("import os, signal", kill, loader=WITH_WORKER))
    command = [sys.executable, "-m", "gpudoctor", "check", "train.py"]
    # it returns when the last process that holds its pipes has ended
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert left_in(tmp_path) == []


def test_errors_that_python_itself_ignores_do_not_fail_the_script(check: Callable[..., Checked]) -> None:
    code = train(
        "import atexit, threading; atexit.register(lambda: [][1])",
        "step == 30 and epoch == 0 and threading.Thread(target=lambda: {}[2]).start()",
        loader=WITH_WORKER,
    ).replace("range(100000)", "range(2)")
    run = check(code, "--run-to-end")
    assert run.code == 0
    assert "IndexError" in run.err
    assert "KeyError" in run.err
    assert (run.diagnosis["run"]["script_exit"], run.diagnosis["run"]["steps"]) == (0, 80)


RANKS = """
import ctypes, os, torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("gloo")
net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1)); opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(100000):
    opt.zero_grad(); net(torch.randn(8, 8)).square().mean().backward(); opt.step()
    if step == 30 and dist.get_rank() == 1: ctypes.string_at(0)
"""


def test_a_rank_that_crashes_ends_the_run_and_leaves_both_recordings(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    run = gpudoctor("check", "--output-format", "json", "--", sys.executable, *words, cwd=tmp_path)
    assert run.code == 3, run.err
    assert run.diagnosis["run"]["script_exit"] == 1
    assert run.diagnosis["run"]["steps"] >= 1
    assert sorted(path.name for path in run.recording.glob("rank*")) == ["rank0", "rank1"]
    assert left_in(tmp_path) == []


def limited(limit: str, each: str = "pass") -> str:
    return train(f"import resource; {limit}", each).replace("range(100000)", "range(2)")


def test_a_full_disk_costs_the_recording_not_the_script(check: Callable[..., Checked]) -> None:
    code = limited("resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))") + "print('script done', flush=True)\n"
    run = check(code, "--run-to-end")
    assert "script done" in run.err
    assert run.code in (0, 4), run.err
    assert run.diagnosis["run"]["script_exit"] == 0
    assert run.diagnosis["run"]["integrity"]


def test_closed_descriptors_cost_the_recording_not_the_script(check: Callable[..., Checked]) -> None:
    code = train("import os", "step == 20 and epoch == 0 and os.closerange(3, 256)").replace(
        "range(100000)", "range(2)"
    )
    run = check(code + "print('script done', flush=True)\n", "--run-to-end")
    assert "script done" in run.err
    assert run.diagnosis["run"]["script_exit"] == 0


def test_out_of_memory_in_the_script_is_the_scripts_failure(check: Callable[..., Checked]) -> None:
    code = limited(
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)); hold = []",
        "epoch == 0 and step == 25 and hold.append(torch.ones(4 << 30))",
    )
    run = check(code)
    assert run.code == 3
    assert "alloc" in run.err
    assert run.diagnosis["run"]["steps"] == 26


def test_a_syntax_error_in_the_script_is_the_scripts_failure(check: Callable[..., Checked]) -> None:
    run = check("import torch\ndef (:\n")
    assert run.code == 3
    assert "SyntaxError" in run.err
    assert run.diagnosis["run"]["steps"] == 0


def test_closed_standard_output_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(train().replace("range(100000)", "range(1)"))
    command = f"{sys.executable} -m gpudoctor check train.py >&-"
    run = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert "Traceback" not in run.stderr
    assert run.returncode == 0
    assert (tmp_path / ".gpudoctor" / "latest" / "report.html").is_file()


def test_a_reader_that_goes_away_is_no_crash(check: Callable[..., Checked]) -> None:
    recording = check(train().replace("range(100000)", "range(1)")).recording
    command = f"{sys.executable} -m gpudoctor analyze {recording} | head -n 1"
    run = subprocess.run(
        command, shell=True, cwd=recording, env=environment(), capture_output=True, text=True, check=False
    )
    assert run.stdout.startswith("gpudoctor")
    assert "Traceback" not in run.stderr


def test_a_folder_named_like_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").mkdir()
    run = gpudoctor("check", "train.py", cwd=tmp_path)
    assert run.code == 2
    assert "train.py" in run.err
