"""Every way to start a training is recorded: launchers, ranks, forks, shell scripts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Checked, environment, gpudoctor

DDP = """
import os, sys, torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = DistributedDataParallel(nn.Linear(16, 16)); opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(int(sys.argv[1])):
    opt.zero_grad(); net(torch.randn(4, 16)).square().mean().backward(); opt.step()
print(f"rank {dist.get_rank()} " + " ".join(f"{p.double().sum().item():.17g}" for p in net.parameters()), flush=True)
dist.barrier()  # gloo complains when a peer leaves first
dist.destroy_process_group()
"""


def ranks(recording: Path) -> dict[str, dict[str, Any]]:
    return {rank.name: json.loads((rank / "run.json").read_text()) for rank in sorted(recording.glob("rank*"))}


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    (folder / name).write_text(text)
    return folder


def launcher() -> str:
    return str(Path(sys.executable).with_name("torchrun"))


def died_at_its_exit(said: str) -> bool:
    """Whether a rank was aborted after both had printed their numbers: gloo's threads race with the process's end."""
    ended = len(re.findall(r"rank \d -?\d+\.\d+", said)) >= 2
    return ended and ("terminate called without an active exception" in said or "exitcode  : -6" in said)


def test_torchrun_as_the_command_records_each_rank_and_changes_no_number(tmp_path: Path) -> None:
    script(tmp_path, DDP)
    words = ("--nproc_per_node", "2", "--master_port", "29631", "train.py", "30")
    run = gpudoctor("check", "--output-format", "json", "--run-to-end", "--", launcher(), *words, cwd=tmp_path)
    if died_at_its_exit(run.err):
        words = [word.replace("29631", "29651") for word in words]
        run = gpudoctor("check", "--output-format", "json", "--run-to-end", "--", launcher(), *words, cwd=tmp_path)
    assert run.code == 0, run.err
    assert {name: rank["steps"] for name, rank in ranks(run.recording).items()} == {"rank0": 30, "rank1": 30}
    assert run.diagnosis["run"]["steps"] == 30
    assert "2 ranks were recorded: rank0 was judged, the others were not" in run.diagnosis["run"]["integrity"]
    assert all(phases - {"other"} == {"forward", "backward", "optimizer"} for phases in run.phases())
    ops = run.table("ops")
    reduced = ops[ops["name"].str.contains("all_?reduce", regex=True)]
    assert set(reduced["phase"]) == {"backward"}
    assert set(reduced["step"]) == set(ops["step"])
    versions = run.table("rank_versions")
    assert set(versions["rank"]) == {0, 1}
    assert set(versions.groupby("name")["version"].nunique()) == {1}
    # the first port may still be closing
    elsewhere = [word.replace("29631", "29641").replace("29651", "29661") for word in words]
    bare = subprocess.run(
        [launcher(), *elsewhere], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    # gloo's threads sometimes abort a plain run at its exit; nothing else may fail
    assert bare.returncode == 0 or died_at_its_exit(bare.stdout + bare.stderr), bare.stderr
    # two ranks write at once: their lines can run into each other
    said = re.compile(r"rank \d(?: -?\d+\.\d+(?:e-?\d+)?)+")
    lines = sorted(said.findall(bare.stdout))
    assert len(lines) == 2, bare.stderr
    assert sorted(said.findall(run.err)) == lines


def test_gpudoctor_under_torchrun_speaks_once_for_all_ranks(tmp_path: Path) -> None:
    script(tmp_path, DDP)
    words = [launcher(), "--nproc_per_node", "2", "--master_port", "29632", "-m", "gpudoctor", "check"]
    words += ["--output-format", "json", "train.py", "--", "20"]
    run = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["run"]["steps"] == 20
    recording = (tmp_path / ".gpudoctor" / "latest").resolve()
    assert {name: rank["steps"] for name, rank in ranks(recording).items()} == {"rank0": 20, "rank1": 20}


def test_ranks_stop_together_at_one_step(tmp_path: Path) -> None:
    script(tmp_path, DDP)
    words = ("--nproc_per_node", "2", "--master_port", "29633", "train.py", "1000000")
    run = gpudoctor("check", "--output-format", "json", "--budget", "1", "--", launcher(), *words, cwd=tmp_path)
    assert run.code == 0, run.err
    found = ranks(run.recording)
    assert found["rank0"]["steps"] == found["rank1"]["steps"]
    assert all(rank["stopped_by_gpudoctor"] for rank in found.values())


def test_spawned_ranks_are_recorded_and_the_parent_goes_on(tmp_path: Path) -> None:
    code = """
import torch, torch.nn as nn, torch.distributed as dist, torch.multiprocessing as mp
def work(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29634", rank=rank, world_size=2)
    net = nn.parallel.DistributedDataParallel(nn.Linear(16, 16)); opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for i in range(25):
        opt.zero_grad(); net(torch.randn(4, 16)).square().mean().backward(); opt.step()
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
    print("parent done")
"""
    run = gpudoctor("check", "--output-format", "json", "train.py", cwd=script(tmp_path, code))
    assert run.code == 0, run.err
    assert "parent done" in run.err
    assert {name: rank["steps"] for name, rank in ranks(run.recording).items()} == {"rank0": 25, "rank1": 25}


def test_a_forked_child_that_trains_is_recorded_and_forked_loader_workers_are_not(tmp_path: Path) -> None:
    code = """
import multiprocessing as mp, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
def work():
    net = nn.Linear(16, 16); opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for (x,) in DataLoader(TensorDataset(torch.randn(160, 16)), batch_size=8, num_workers=2):
        opt.zero_grad(); net(x).square().mean().backward(); opt.step()
if __name__ == "__main__":
    child = mp.get_context("fork").Process(target=work); child.start(); child.join()
    print("exit", child.exitcode)
"""
    run = gpudoctor("check", "--output-format", "json", "train.py", cwd=script(tmp_path, code))
    assert run.code == 0, run.err
    assert "exit 0" in run.err
    assert {name: rank["steps"] for name, rank in ranks(run.recording).items()} == {"rank0": 20}


def test_ranks_and_loader_workers_of_a_fork_server_work(tmp_path: Path) -> None:
    code = """
import multiprocessing as mp, sys, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
def work(rank):
    torch.manual_seed(rank)
    net = nn.Linear(16, 16); opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(160, 16)), batch_size=8, num_workers=1, multiprocessing_context="forkserver")
    for (x,) in loader:
        opt.zero_grad(); net(x).square().mean().backward(); opt.step()
if __name__ == "__main__":
    context = mp.get_context("forkserver")
    if len(sys.argv) > 1: context.set_forkserver_preload(["torch"])
    children = [context.Process(target=work, args=(rank,)) for rank in range(2)]
    for child in children: child.start()
    for child in children: child.join()
    print("exits", [child.exitcode for child in children])
"""
    for name, words in (("plain", ()), ("preloaded", ("--", "preload"))):
        folder = tmp_path / name
        folder.mkdir()
        run = gpudoctor("check", "--output-format", "json", "train.py", *words, cwd=script(folder, code))
        assert run.code == 0, run.err
        assert "exits [0, 0]" in run.err
        assert {name: rank["steps"] for name, rank in ranks(run.recording).items()} == {"rank0": 20, "rank1": 20}


def test_a_shell_script_may_start_helpers_before_the_training(tmp_path: Path) -> None:
    script(
        tmp_path,
        "import torch, torch.nn as nn\nnet = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for i in range(15):\n    opt.zero_grad(); net(torch.randn(4, 4)).mean().backward(); opt.step()\n",
    )
    shell = tmp_path / "run.sh"
    shell.write_text(f"#!/bin/sh\n{sys.executable} -c 'import torch'\nexec {sys.executable} train.py\n")
    shell.chmod(0o755)
    run = gpudoctor("check", "--output-format", "json", "--", "./run.sh", cwd=tmp_path)
    assert run.code == 0, run.err
    assert run.diagnosis["run"]["steps"] == 15


def test_a_script_may_change_folder_and_delete_its_own_file(check: Callable[..., Checked]) -> None:
    code = """import os, torch, torch.nn as nn
os.remove(__file__); os.makedirs("elsewhere"); os.chdir("elsewhere")
net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(15):
    opt.zero_grad(); loss = net(torch.randn(4, 4)).mean(); loss.backward(); opt.step()
    loss.item()
"""
    run = check(code)
    (finding,) = run.findings("GD301")
    assert (finding["where"]["file"], finding["where"]["line"]) == ("train.py", 6)
    assert [line["text"] for line in finding["excerpt"] if line["culprit"]] == ["    loss.item()"]


def test_ten_megabytes_of_output_and_input_from_standard_input_pass_through(tmp_path: Path) -> None:
    code = """import sys, torch, torch.nn as nn
net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
print("read", sys.stdin.readline().strip())
for i in range(15):
    opt.zero_grad(); net(torch.randn(4, 4)).mean().backward(); opt.step()
    print("x" * 700_000)
"""
    script(tmp_path, code)
    words = [sys.executable, "-m", "gpudoctor", "check", "--output-format", "json", "train.py"]
    run = subprocess.run(
        words, cwd=tmp_path, env=environment(), input="a line\n", capture_output=True, text=True, check=False
    )
    assert run.returncode == 0
    assert "read a line" in run.stderr
    assert run.stderr.count("x" * 700_000) == 15
    assert json.loads(run.stdout)["run"]["steps"] == 15
