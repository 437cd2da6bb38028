"""What needs a GPU says why it is not measured where there is none; what reads a driver's answers reads fakes here."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.ingest import watch as watch_log
from gpudoctor.ingest.recording import _memory_row
from gpudoctor.recorder import cuda, nvml, torch_private
from gpudoctor.recorder.host import Host
from gpudoctor.recorder.patches import Patches


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "cuda_initialized", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_cuda_nothing_is_measured_and_the_reason_is_given(tmp_path: Path) -> None:
    assert cuda.warm_up() == cuda.NO_CONTEXT
    assert cuda.start_history() == cuda.NO_CONTEXT
    assert "not recorded" in (cuda.dump_history(tmp_path / "memory.pickle") or "")
    assert list(tmp_path.iterdir()) == []
    assert cuda.memory_reading() == []
    assert torch_private.devices_in_use() == []


@pytest.mark.usefixtures("no_gpu")
def test_without_cuda_the_host_is_still_read() -> None:
    host = Host()
    assert {row["name"] for row in host.rows()} >= {"wall_ns", "cpu_user_ns"}
    assert host.why_no_gpu is None


class FakeMemory:
    """Home of the allocator's functions, without an allocator."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.broken = False

    def _record_memory_history(self, enabled: Any = "all", **options: Any) -> None:
        self.calls.append(enabled)

    def _snapshot(self) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError("no snapshot today")
        return {"segments": [], "device_traces": [[]]}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMemory]:
    fake = FakeMemory()
    monkeypatch.setattr(torch_private, "cuda_initialized", lambda: True)
    monkeypatch.setattr(torch_private, "history_enabled", lambda: False)
    monkeypatch.setattr(torch_private, "cuda_memory", fake)
    patches = Patches()
    cuda.watch_history(patches)
    yield fake
    patches.undo()
    cuda._History.ours = cuda._History.scripts = False


def test_the_history_is_recorded_dumped_and_switched_off(memory: FakeMemory, tmp_path: Path) -> None:
    assert cuda.start_history() is None
    assert cuda.dump_history(tmp_path / "memory.pickle") is None
    assert memory.calls == ["all", None]
    assert pickle.loads((tmp_path / "memory.pickle").read_bytes())["segments"] == []


def test_a_history_of_the_scripts_own_is_left_alone(memory: FakeMemory, tmp_path: Path) -> None:
    memory._record_memory_history("all")
    assert cuda.start_history() == cuda.SCRIPTS_OWN
    assert memory.calls == ["all"]
    memory._record_memory_history(None)
    assert cuda.start_history() is None
    memory._record_memory_history("all")  # it begins while ours runs
    assert cuda.dump_history(tmp_path / "memory.pickle") == cuda.SCRIPTS_OWN
    assert memory.calls[-1] == "all"
    assert not (tmp_path / "memory.pickle").exists()


def test_a_snapshot_that_fails_is_a_reason_and_ends_the_history(memory: FakeMemory, tmp_path: Path) -> None:
    cuda.start_history()
    memory.broken = True
    assert "no snapshot today" in (cuda.dump_history(tmp_path / "memory.pickle") or "")
    assert memory.calls == ["all", None]


STATISTICS = {
    "allocated_bytes": {"all": {"current": 100, "peak": 300}},
    "reserved_bytes": {"all": {"current": 400}},
    "active_bytes": {"all": {"current": 150}},
    "inactive_split_bytes": {"all": {"current": 50}},
    "num_alloc_retries": 1,
    "num_device_alloc": 7,
    "num_device_free": 2,
    "num_ooms": 0,
}


def test_the_allocators_statistics_become_a_row_of_the_step_that_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch_private, "cuda_initialized", lambda: True)
    monkeypatch.setattr(torch_private, "device_count", lambda: 1)
    monkeypatch.setattr(torch_private, "memory_statistics", lambda device: STATISTICS)
    ((device, *values),) = cuda.memory_reading()
    (tmp_path / "watch.jsonl").write_text(f'["G", 2000, 2000, {device}, {", ".join(map(str, values))}]\n')
    log = watch_log.read(tmp_path / "watch.jsonl")
    steps = [{"step": 0, "start_ns": 0}, {"step": 1, "start_ns": 1000}, {"step": 2, "start_ns": 2000}]
    row = _memory_row(log.memory[0], steps)
    assert (row["step"], row["device"], row["allocated_peak_bytes"]) == (1, 0, 300)
    assert (row["inactive_split_bytes"], row["alloc_retries"], row["device_frees"], row["ooms"]) == (50, 1, 2, 0)


def test_statistics_that_a_version_lacks_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "cuda_initialized", lambda: True)
    monkeypatch.setattr(torch_private, "device_count", lambda: 1)
    monkeypatch.setattr(torch_private, "memory_statistics", lambda device: {"allocated_bytes": {}})
    assert cuda.memory_reading() == []


class FakeNvml:
    """One GPU, found by its UUID; it does not tell its power."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, pids: tuple[int, ...] = ()) -> None:
        self.pids, self.open = pids, False

    def nvmlInit(self) -> None:  # noqa: N802 - names of the library
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-abc":
            raise RuntimeError("not found")
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:  # noqa: N802
        return 1200 if clock == self.NVML_CLOCK_SM else 2600

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return 0x8

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 83

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        raise RuntimeError("not supported")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.pids]


def test_a_gpu_is_read_and_what_it_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml((os.getpid(), 1))
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    found, why = nvml.rows([(0, "abc")])
    values = {row["name"]: row["value"] for row in found}
    assert why is None
    assert (values["sm_clock_hz"], values["sm_clock_max_hz"], values["throttle_reasons"]) == (1.2e9, 1.98e9, 8.0)
    assert (values["processes"], values["other_processes"]) == (2.0, 1.0)
    assert "power_w" not in values
    assert not fake.open


def test_processes_of_others_are_unknown_where_the_driver_counts_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml((1,)))
    found, _ = nvml.rows([(0, "abc")])
    assert "other_processes" not in {row["name"] for row in found}


@pytest.mark.parametrize(
    ("module", "reason"),
    [(None, "not installed"), (SimpleNamespace(), "does not answer"), (FakeNvml(), "knows none")],
)
def test_no_reading_has_a_reason(module: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    found, why = nvml.rows([(0, "other")])
    assert found == []
    assert reason in (why or "")
