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

from gpudoctor.recorder import torch_private
from gpudoctor.userfiles import UserFiles, function_name

FILE = "lines.json"
PREFIX = "gpudoctor::line#"
MAX_MARKS = 300_000  # a pure-Python inner loop; beyond this the trace grows by hundreds of MB and says nothing new


class LineMarks:
    """Switches marks on and off, and saves which mark is which line.

    The trace functions run inside the user's calls, compiled ones too, where Dynamo looks at every Python frame: they
    bear the file name of torch's own code and call nothing but C functions, except for a line seen for the first time.
    """

    def __init__(self, files: UserFiles) -> None:
        self._files = files
        self._marks: dict[tuple[CodeType, int], Any] = {}
        self._lines: list[list[Any]] = []
        self._touched: list[FrameType] = []
        self._left = MAX_MARKS
        self._new_mark = torch_private.hidden_from_dynamo(self._make_mark)
        self._name = torch_private.hidden_from_dynamo(files.name)
        self._halt = torch_private.hidden_from_dynamo(self._exhaust)
        self._call, self._local = self._trace_functions()
        self.active = False
        self.exhausted = False

    def start(self) -> None:
        """Begins marking in this thread, unless someone else (a debugger, coverage) traces already."""
        if torch_private.record_function_fast is None or sys.gettrace() is not None:
            return
        self.active, self._left = True, MAX_MARKS
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

    def _make_mark(self, frame: FrameType) -> Any:
        mark = torch_private.record_function_fast(f"{PREFIX}{len(self._lines)}")
        self._marks[frame.f_code, frame.f_lineno] = mark
        self._lines.append([self._files.name(frame.f_code.co_filename), frame.f_lineno, function_name(frame.f_code)])
        return mark

    def _exhaust(self) -> None:
        self.exhausted = True
        self.stop()

    def _trace_functions(self) -> tuple[Any, Any]:
        """The two functions for sys.settrace: for calls, and for what happens in a frame of the user's."""
        marks, known = self._marks, self._files.known
        last: Any = None

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            file = frame.f_code.co_filename
            name = known[file] if file in known else self._name(file)
            return local if name is not None else None

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            at: FrameType | None = frame
            if event == "return":
                at = frame.f_back
                while at is not None and known.get(at.f_code.co_filename) is None:
                    at = at.f_back
            elif event != "line":
                return local
            if at is None:
                return local
            mark = marks.get((at.f_code, at.f_lineno)) or self._new_mark(at)
            if mark is last:
                return local
            last = mark
            self._left -= 1
            if self._left < 0:
                self._halt()
                return None
            with mark:
                pass
            return local

        return torch_private.as_torch_code(call), torch_private.as_torch_code(local)
