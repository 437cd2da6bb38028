"""The exact user line of every operator in a detail step.

torch's own Python tracer knows the call line of C functions (`x.item()`), but not of Python operators and slots
(`a + b`, `float(t)`, `if t:`, `x[mask]`): there it gives the first line of the function only. So during a detail step
`sys.settrace` is set for the user's frames alone, and each line that runs leaves an empty mark in the profile, on the
same clock and thread as the operators. The user line of an operator is the last mark before it. Nothing is patched,
compiled code keeps running compiled, and operators of library code belong to the user's line that called it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gpudoctor.record import torch_private
from gpudoctor.userfiles import UserFiles, function_name

FILE = "lines.json"
PREFIX = "gpudoctor::line#"
MAX_MARKS = 300_000  # a pure-Python inner loop; beyond this the trace grows by hundreds of MB and says nothing new


class LineMarks:
    """Switches marks on and off, and saves which mark is which line."""

    def __init__(self, files: UserFiles) -> None:
        self._files = files
        self._marks: dict[tuple[CodeType, int], Any] = {}
        self._lines: list[list[Any]] = []
        self._last: Any = None
        self._left = MAX_MARKS
        self._touched: list[FrameType] = []
        self.active = False
        self.exhausted = False

    def start(self) -> None:
        """Begins marking in this thread, unless someone else (a debugger, coverage) traces already."""
        if torch_private.record_function_fast is None or sys.gettrace() is not None:
            return
        self.active, self._last, self._left = True, None, MAX_MARKS
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace is None and self._files.name(frame.f_code.co_filename) is not None:
                frame.f_trace = self._local
                self._touched.append(frame)
            frame = frame.f_back
        sys.settrace(self._call)

    def stop(self) -> None:
        """Ends marking."""
        if not self.active:
            return
        self.active = False
        sys.settrace(None)
        for frame in self._touched:
            frame.f_trace = None
        self._touched.clear()

    def pause(self) -> bool:
        """Suspends marking around code whose lines do not matter (a dataset). True when it was on."""
        if self.active and sys.gettrace() is not None:
            sys.settrace(None)
            return True
        return False

    def resume(self) -> None:
        """Undoes `pause`."""
        if self.active:
            sys.settrace(self._call)

    def save(self, folder: Path) -> None:
        """Writes `lines.json`: for mark n, `[file, line, function]`."""
        (folder / FILE).write_text(json.dumps(self._lines), encoding="utf-8")

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._local if self._files.name(frame.f_code.co_filename) is not None else None

    def _local(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._mark(frame)
        elif event == "return":
            caller = self._files.frame(frame.f_back)
            if caller is not None:
                self._mark(caller)
        return self._local

    def _mark(self, frame: FrameType) -> None:
        key = (frame.f_code, frame.f_lineno)
        mark = self._marks.get(key)
        if mark is None:
            mark = torch_private.record_function_fast(f"{PREFIX}{len(self._lines)}")
            self._marks[key] = mark
            name = self._files.name(frame.f_code.co_filename)
            self._lines.append([name, frame.f_lineno, function_name(frame.f_code)])
        if mark is self._last:
            return
        self._last = mark
        self._left -= 1
        if self._left < 0:
            self.exhausted = True
            self.stop()
            return
        with mark:
            pass
