"""The whole-run watch: a cheap, append-only log of what the training loop did.

One JSON array a line in `watch.jsonl`, `[kind, start_ns, end_ns, …]`, times from the recording's zero:

    ["O", start, end, optimizer, depth, thread]     an optimizer step; depth > 0 when inside a backward call
    ["S", start, end, optimizer, depth, thread]     a step that GradScaler skipped
    ["B", start, end, thread, continues, graph]   a backward call (outermost); continues: nothing was updated since the
                                            one before; graph: its gradients are to be differentiated again; under
                                            autocast one cell more: its dtype and the line
    ["V", start, start, scaler, skipped]    a step that went through a gradient scaler
    ["T", start, end]                       a step whose end the caller stated
    ["D", start, end, loader, epoch, position, size, fetch_ns, collate_ns, thread, cpu_ns]   a batch
    ["I", start, end, loader, epoch]        an iterator over a loader was made, its workers started
    ["W", now, now, loader, batches, wall_ns, cpu_ns]   what a loader's workers took for batches, in all
    ["E", start, end, loader, epoch]        an epoch's end
    ["K", start, end, compile_id, kind, file, line]   a compilation: dynamo (and who called the code) or backward
    ["P", start, end, burst, label]         gpudoctor's own work around a burst: start or stop of the profiler;
                                            or aside: a block that the script recorded itself; or count: of the
                                            live tensors
    ["M", start, start, number, burst]      a profiled step began
    ["G", start, end, device, …]            the CUDA allocator after a step: `cuda.memory_reading()`
    ["U", start, end, bytes]                memory of the process in RAM after a step
    ["Q", [start, end, number, calls, ns]]  work of the kind and place `number`, added up between two events of the loop
    ["N", {…}]                              what a number stands for: kind (print, log, checkpoint, …, gc), name, stack
    ["L", {…}]  ["C", {…}]  ["H", {…}]  ["A", {…}]   a DataLoader, a torch.compile call, a learning-rate scheduler, a
                                            gradient scaler
    ["Z", {…}]  ["R", {…}]                  an optimizer that was constructed, a wrapper for several devices or ranks
    ["X", start, end, what, file, line, function, by_user, thread]   the script waited for the device, emptied a cache
                                            or collected garbage by hand; then one cell more: the generation
    ["L", {…}]  ["C", {…}]  ["H", {…}]      a DataLoader, a torch.compile call, a learning-rate scheduler
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any, TextIO

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.place import Place

FILE = "watch.jsonl"
_FLUSH_NS = 200_000_000  # what a killed process loses at most; one write in that time costs nothing
_FLUSH_ROWS = 1024


class Watch:
    """Collects events and writes them as it goes, so that a killed process leaves a readable log.

    Nothing is written before `place` is claimed.
    """

    def __init__(self, place: Place) -> None:
        self.zero_ns = time.perf_counter_ns()
        self.zero_unix_ns = time.time_ns()
        self._rows: list[tuple[Any, ...]] = []
        self._lock, self._writing = threading.RLock(), False
        self._flushed_ns = 0
        self._place = place
        self._file: TextIO | None = None
        self.failed: str | None = None

    @torch_private.as_torch_code  # called where Dynamo looks at every frame
    def now(self) -> int:
        """Nanoseconds since the recording's zero."""
        return time.perf_counter_ns() - self.zero_ns

    def add(self, *row: Any) -> None:
        """Appends one event."""
        self._rows.append(row)
        if len(self._rows) >= _FLUSH_ROWS or self.now() - self._flushed_ns > _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Writes what is buffered."""
        if not self._place.claimed:
            return
        try:
            self._write()
        except (OSError, ValueError) as error:  # a full disk or a closed descriptor: the script goes on
            self._rows, self._file, self.failed = [], None, str(error)

    def _write(self) -> None:
        with self._lock:
            if self._writing:  # a finaliser or signal handler in the middle of this: its rows wait for the next time
                return
            self._writing = True
            try:
                if self._file is None:
                    self._file = (self._place.folder / FILE).open("a", encoding="utf-8")
                rows, self._rows = self._rows, []
                self._file.write("".join(json.dumps(row, default=str) + "\n" for row in rows))
                self._file.flush()
                self._flushed_ns = self.now()
            finally:
                self._writing = False

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self.flush()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def forget(self) -> None:
        """A forked child drops what its parent has not written yet: the parent will."""
        self._rows, self._file, self._lock, self._writing = [], None, threading.RLock(), False

    def owns(self, descriptor: int) -> bool:
        """Whether a file descriptor is the log's own."""
        return self._file is not None and not self._file.closed and self._file.fileno() == descriptor
