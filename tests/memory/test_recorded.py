"""What a run writes of a GPU's memory, and what is read of it; the files are made here, as this machine has no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from gpudoctor.ingest import recorded_memory
from gpudoctor.profile import from_columns
from gpudoctor.recorder import memory_objects
from gpudoctor.recorder.out_of_memory import FILE, OutOfMemoryWatch
from gpudoctor.recording import MEMORY_FILE
from gpudoctor.userfiles import UserFiles
from tests.memory.snapshots import BASE, FORWARD, MIB, Recorder, block, segment, snapshot, write


def test_a_failed_request_is_written_with_the_line_that_made_it(tmp_path: Path) -> None:
    files = UserFiles(str(Path(__file__).parents[2]), (), here=True)
    watch = OutOfMemoryWatch(lambda: tmp_path, files, lambda: True, lambda: 7)

    def request() -> None:
        watch.failed(1, 512 * MIB, 8000 * MIB, 20 * MIB)

    request()
    request()
    said = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    assert (said["device"], said["oom_bytes"], said["capacity_bytes"], said["ooms"]) == (1, 512 * MIB, 8000 * MIB, 2)
    assert said["file"].endswith("tests/memory/test_recorded.py") and said["function"].endswith("request")
    assert not (tmp_path / MEMORY_FILE).exists()  # without CUDA there is no snapshot, and no half of one


def test_a_process_that_is_not_recorded_writes_nothing(tmp_path: Path) -> None:
    watch = OutOfMemoryWatch(lambda: tmp_path, UserFiles("/", (), here=True), lambda: False, lambda: 7)
    watch.failed(0, 1, 2, 3)
    assert list(tmp_path.iterdir()) == []


def test_only_what_lies_on_a_gpu_is_written_of_an_optimizer(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    memory_objects.note(optimizer)
    memory_objects.save(tmp_path)
    assert json.loads((tmp_path / memory_objects.FILE).read_text(encoding="utf-8")) == []


def rank(folder: Path) -> Path:
    recorder = Recorder()
    recorder.alloc(BASE + 8 * MIB, 4 * MIB)
    blocks = [
        block(BASE, 8 * MIB),
        block(BASE + 8 * MIB, 4 * MIB, frames=FORWARD),
        block(BASE + 12 * MIB, 8 * MIB, "inactive"),
    ]
    write(folder / MEMORY_FILE, snapshot([segment(BASE, 20 * MIB, blocks)], recorder.entries))
    return folder


def files() -> UserFiles:
    made = UserFiles("/home/me", (), here=False)
    made.known |= {"/home/me/model.py": "model.py"}
    return made


def test_what_the_run_knew_of_its_tensors_goes_before_what_is_inferred(tmp_path: Path) -> None:
    folder = rank(tmp_path)
    (folder / recorded_memory.OBJECTS).write_text(json.dumps([[0, BASE, "optimizer state"]]), encoding="utf-8")
    made, missing = recorded_memory.tables(folder, {"gpu_memory": [[0, 80 * MIB]]}, files(), True, [])
    rows = from_columns("memory_peak", made["memory_peak"]).to_dict("records")
    assert [(row["category"], row["inferred"], row["bytes"]) for row in rows] == [
        ("optimizer state", False, 8 * MIB),
        ("activations", True, 4 * MIB),
    ]
    assert rows[1]["file"] == "model.py"
    assert from_columns("allocator", made["allocator"])["capacity_bytes"].tolist() == [80 * MIB] and not missing


def test_the_request_that_failed_is_told_as_the_run_saw_it(tmp_path: Path) -> None:
    folder = rank(tmp_path)
    failed = {"device": 0, "oom_bytes": 64 * MIB, "capacity_bytes": 30 * MIB, "oom_device_free_bytes": MIB, "ooms": 1}
    place = {"file": "train.py", "line": 9, "function": "main"}
    (folder / recorded_memory.FAILED).write_text(json.dumps(failed | place), encoding="utf-8")
    made, _ = recorded_memory.tables(folder, {}, files(), True, [])
    row = from_columns("allocator", made["allocator"]).to_dict("records")[0]
    assert (row["ooms"], row["oom_bytes"], row["oom_device_free_bytes"]) == (1, 64 * MIB, MIB)
    assert (row["oom_file"], row["oom_line"], row["oom_function"]) == ("train.py", 9, "main")
    assert (row["oom_reserved_bytes"], row["oom_allocated_bytes"], row["capacity_bytes"]) == (
        20 * MIB,
        12 * MIB,
        30 * MIB,
    )


def test_a_damaged_snapshot_is_lost_with_a_note_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / MEMORY_FILE).write_bytes(b"\x80\x04]")
    notes: list[str] = []
    made, missing = recorded_memory.tables(tmp_path, {}, files(), True, notes)
    assert made == {} and "cannot be read" in missing["allocator"] and "is lost" in notes[0]


def test_without_a_gpu_the_reason_is_that(tmp_path: Path) -> None:
    _, missing = recorded_memory.tables(tmp_path, {}, files(), False, [])
    assert set(missing.values()) == {"the run used no GPU"}
