"""What there was when a request for GPU memory failed: the request, its line, the device's room, and a snapshot.

torch calls an observer before it raises `torch.OutOfMemoryError`; nothing is unwound yet, so that everything that fills
the memory is still there. The script's own error goes its way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpudoctor.recorder import cuda, memory_objects
from gpudoctor.recording import MEMORY_FILE
from gpudoctor.userfiles import UserFiles

FILE = "out_of_memory.json"


class OutOfMemoryWatch:
    """Writes the last failed request into the recording.

    Args:
        folder: gives the rank's folder.
        files: the user's files.
        live: whether this process is being recorded.
        now: nanoseconds on the recording's clock.
    """

    def __init__(
        self, folder: Callable[[], Path], files: UserFiles, live: Callable[[], bool], now: Callable[[], int]
    ) -> None:
        self._folder, self._files, self._live, self._now = folder, files, live, now
        self._failed = 0

    def install(self) -> None:
        """Asks torch to be told; where no CUDA context exists yet, as soon as the script makes one."""
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        later = getattr(torch.cuda, "_lazy_call", None)
        if attach is not None and later is not None:
            later(lambda: self._attach(attach))

    def _attach(self, attach: Callable[[Callable[..., None]], None]) -> None:
        try:
            attach(self.failed)
        except Exception:  # a queued call that raises would end the script's first use of CUDA
            return

    def failed(self, device: int, request_bytes: int, capacity_bytes: int, device_free_bytes: int) -> None:
        """A request failed; called by torch with bytes."""
        if not self._live():
            return
        try:
            self._failed += 1
            self._write(device, request_bytes, capacity_bytes, device_free_bytes)
        except Exception:  # the script must get its own error, not ours
            return

    def _write(self, device: int, request_bytes: int, capacity_bytes: int, device_free_bytes: int) -> None:
        folder = self._folder()
        facts: dict[str, Any] = {
            "device": device,
            "time_ns": self._now(),
            "oom_bytes": request_bytes,
            "capacity_bytes": capacity_bytes,
            "oom_device_free_bytes": device_free_bytes,
            "ooms": self._failed,
            **self._files.site(sys._getframe(2)),
        }
        (folder / FILE).write_text(json.dumps(facts), encoding="utf-8")
        self._files.save_sources(folder)
        if cuda.write_snapshot(folder / MEMORY_FILE) is None:
            memory_objects.save(folder)
