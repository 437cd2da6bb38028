"""What the run cost the machine while it was watched: CPU time, memory, context switches; GPU state through NVML."""

from __future__ import annotations

import contextlib
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudoctor.recorder import torch_private

FILE = "host.json"
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux


class Host:
    """Takes a reading when the process begins to train, and another at its end."""

    def __init__(self) -> None:
        self._wall_ns = time.perf_counter_ns()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table `host` for the time since the first reading."""
        now, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        values: dict[str, float] = {
            "wall_ns": time.perf_counter_ns() - self._wall_ns,
            "cpu_user_ns": (now.ru_utime - before.ru_utime) * 1e9,
            "cpu_system_ns": (now.ru_stime - before.ru_stime) * 1e9,
            "peak_rss_bytes": now.ru_maxrss * _RSS_UNIT,
            "voluntary_context_switches": now.ru_nvcsw - before.ru_nvcsw,
            "involuntary_context_switches": now.ru_nivcsw - before.ru_nivcsw,
        }
        rows = [{"name": name, "device": None, "value": float(value)} for name, value in values.items()]
        return rows + _gpu_rows()

    def save(self, folder: Path) -> None:
        """Writes `host.json`."""
        (folder / FILE).write_text(json.dumps(self.rows()), encoding="utf-8")


def _gpu_rows() -> list[dict[str, Any]]:
    """Clocks, throttle reasons and other processes of each GPU in use; empty without CUDA or nvidia-ml-py."""
    if not torch_private.cuda_initialized():
        return []
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return []
    rows: list[dict[str, Any]] = []
    pynvml.nvmlInit()
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            readings: dict[str, Callable[[Any], Any]] = {
                "sm_clock_hz": lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM) * 1e6,
                "sm_clock_max_hz": lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_SM) * 1e6,
                "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,
                "temperature_c": lambda h: pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU),
                "processes": lambda h: len(pynvml.nvmlDeviceGetComputeRunningProcesses(h)),
            }
            for name, read in readings.items():
                with contextlib.suppress(pynvml.NVMLError):  # not supported on this card: not measured
                    rows.append({"name": name, "device": index, "value": float(read(handle))})
    finally:
        pynvml.nvmlShutdown()
    return rows
