"""What the run cost the machine while it was watched: CPU time, memory, context switches; GPU state through NVML."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from gpudoctor.recorder import cpu_time, nvml, torch_private

FILE = "host.json"
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux


class Host:
    """Takes a reading when the process begins to train, and another at its end.

    Attributes:
        why_no_gpu: why the GPUs in use were not read; None when they were, or there are none.
    """

    def __init__(self) -> None:
        self._wall_ns = time.perf_counter_ns()
        self._main_thread = cpu_time.main_thread_ns()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self.why_no_gpu: str | None = None

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
        main, began = cpu_time.main_thread_ns(), self._main_thread
        if main is not None and began is not None:
            values |= {"main_thread_cpu_ns": main[0] - began[0], "main_thread_delay_ns": main[1] - began[1]}
        rows = [{"name": name, "device": None, "value": float(value)} for name, value in values.items()]
        devices = torch_private.devices_in_use()
        if devices:
            gpu, self.why_no_gpu = nvml.rows(devices)
            rows += gpu
        return rows

    def save(self, folder: Path) -> None:
        """Writes `host.json`."""
        (folder / FILE).write_text(json.dumps(self.rows()), encoding="utf-8")
