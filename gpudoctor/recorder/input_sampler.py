"""Finds the lines of a dataset that take the time: samples the main thread's stack while it makes a batch.

Runs in detail steps only, whose times are not judged: a sampling thread takes the interpreter's lock now and then.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path

from gpudoctor.userfiles import UserFiles, function_name

FILE = "input_lines.json"
_LOADER = "torch/utils/data/dataloader.py"  # frames from here outwards are the loop's, not the dataset's
INTERVAL_S = 0.001  # a batch worth looking at takes tens of milliseconds: tens of samples


class InputSampler:
    """Counts the user's lines seen while a batch is made.

    Args:
        files: names the user's files.
    """

    def __init__(self, files: UserFiles) -> None:
        self._files = files
        self._lines: Counter[tuple[str, int, str | None]] = Counter()
        self._end: threading.Event | None = None

    def start(self) -> None:
        """Begins to sample the calling thread."""
        self._end = threading.Event()
        watched = threading.get_ident()
        threading.Thread(target=self._run, args=(self._end, watched), name="gpudoctor-input", daemon=True).start()

    def stop(self) -> None:
        """Ends sampling."""
        if self._end is not None:
            self._end.set()
            self._end = None

    def _run(self, end: threading.Event, watched: int) -> None:
        while not end.wait(INTERVAL_S):
            frame = sys._current_frames().get(watched)
            while frame is not None and not frame.f_code.co_filename.endswith(_LOADER):
                name = self._files.name(frame.f_code.co_filename)
                if name is not None:
                    self._lines[name, frame.f_lineno, function_name(frame.f_code)] += 1
                    break
                frame = frame.f_back

    def save(self, folder: Path) -> None:
        """Writes `input_lines.json`: rows of the table, most often seen first; nothing when nothing was sampled."""
        total = sum(self._lines.values())
        rows = [
            {"file": file, "line": line, "function": function, "samples": count, "share": count / total}
            for (file, line, function), count in self._lines.most_common(50)
        ]
        if rows:
            (folder / FILE).write_text(json.dumps(rows), encoding="utf-8")
