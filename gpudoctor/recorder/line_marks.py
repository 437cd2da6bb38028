"""The exact user line of every operator in a detail step.

torch's own Python tracer knows the call line of C functions (`x.item()`), but not of Python operators and slots
(`a + b`, `float(t)`, `if t:`, `x[mask]`): there it gives the first line of the function only. So during a detail step
`sys.settrace` is set for the user's frames alone, and each line that runs leaves an empty mark in the profile, on the
same clock and thread as the operators. The user line of an operator is the last mark before it. No torch function is
patched, compiled code keeps running compiled, and operators of library code belong to the user's line that called it.

A script may set the trace function itself, or a debugger may. From there on the last mark would be wrong, so another
one says that the line is unknown.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.compile_targets import CompileTargets
from gpudoctor.recorder.module_ranges import ModuleRanges
from gpudoctor.userfiles import UserFiles, function_name

if TYPE_CHECKING:
    from gpudoctor.recorder.module_calls import ModuleCalls
    from gpudoctor.recorder.padded_inputs import PaddedInputs
    from gpudoctor.recorder.what_if import WhatIf

FILE = "lines.json"
PREFIX = "gpudoctor::line#"
MAX_MARKS = 300_000  # a pure-Python inner loop; beyond this the trace grows by hundreds of MB and says nothing new
_UNKNOWN = [None, None, None]


class LineMarks:
    """Switches marks on and off, and saves which mark is which line.

    The trace functions run inside the user's calls, compiled ones too, where Dynamo looks at every Python frame: they
    bear the file name of torch's own code and call nothing but C functions, except for a line seen for the first time.

    Attributes:
        active: marks are wanted now.
        blocked: somebody else traced where marking should have begun.
        exhausted: a step ran too many lines.
        interrupted: the script set the trace function while marks were wanted.
        failed: what went wrong in marking, which ended it then.
    """

    def __init__(
        self,
        files: UserFiles,
        targets: CompileTargets,
        what_if: WhatIf | None = None,
        calls: ModuleCalls | None = None,
        padded: PaddedInputs | None = None,
    ) -> None:
        self._files, self._targets, self._calls = files, targets, calls
        self._modules = ModuleRanges(what_if, calls, padded)
        # by the identity of the code object: Dynamo makes code with constants that cannot be hashed
        self._marks: dict[tuple[int, int], Any] = {}
        self._codes: list[CodeType] = []  # kept alive, so that an identity means one of them
        self._lines: list[list[Any]] = []
        self._numbered: list[Any] = []
        self._touched: list[FrameType] = []
        self._left = MAX_MARKS
        self._thread = 0
        self._paused = False
        self._last: Any = None
        self._unknown: Any = None
        self._settrace = sys.settrace
        self._new_mark = torch_private.hidden_from_dynamo(self._make_mark)
        self._name = torch_private.hidden_from_dynamo(files.name)
        self._lost = torch_private.hidden_from_dynamo(self._look)
        self._halt = torch_private.hidden_from_dynamo(self._exhaust)
        self._fail = torch_private.hidden_from_dynamo(self._give_up)
        self._call, self._local = self._trace_functions()
        self._watched_settrace = self._make_settrace()
        self.active = False
        self.blocked = False
        self.exhausted = False
        self.interrupted = False
        self.failed: str | None = None

    def start(self) -> None:
        """Begins marking in this thread, unless someone else (a debugger, coverage) traces already."""
        if torch_private.record_function_fast is None:
            return
        if sys.gettrace() is not None:
            self.blocked = True
            return
        self.active, self._left, self._last, self._paused = True, MAX_MARKS, None, False
        self._thread = threading.get_ident()
        if self._unknown is None:
            self._unknown = self._numbered_mark(list(_UNKNOWN))
        self._targets.watched()
        running = self._touch(sys._getframe(1))
        self._modules.start(running)
        for frame in running[:1]:
            self._last = self._mark_at(frame)
            with self._last:
                pass
        self._settrace = sys.settrace
        sys.settrace = self._watched_settrace
        self._settrace(self._call)

    def _touch(self, frame: FrameType | None) -> list[FrameType]:
        """Traces the user's frames that run already, from `frame` outwards; returns the user's frames."""
        found = []
        while frame is not None:
            if self._files.name(frame.f_code.co_filename) is not None:
                found.append(frame)
                if frame.f_trace is None:
                    frame.f_trace = self._local
                    self._touched.append(frame)
            frame = frame.f_back
        return found

    def stop(self) -> None:
        """Ends marking; a trace function that the script has set meanwhile stays."""
        if not self.active:
            return
        self._look()
        self.active = False
        if sys.settrace is self._watched_settrace:
            sys.settrace = self._settrace
        if sys.gettrace() is self._call:
            self._settrace(None)
        for frame in self._touched:
            if frame.f_trace is self._local:
                frame.f_trace = None
        self._touched.clear()
        self._modules.stop()

    def forget(self) -> None:
        """A forked child marks nothing: what was begun is its parent's."""
        self._modules.forget()
        self.stop()

    def pause(self) -> bool:
        """Suspends marking around code whose lines do not matter (a dataset). True when it was on."""
        if self.active and sys.gettrace() is self._call:
            self._settrace(None)
            self._paused = True
            return True
        return False

    def resume(self) -> None:
        """Undoes `pause`, unless the script traces by now."""
        self._paused = False
        if self.active and sys.gettrace() is None:
            self._settrace(self._call)

    def save(self, folder: Path) -> None:
        """Writes `lines.json`: for mark n, `[file, line, function]`; and the paths of modules."""
        (folder / FILE).write_text(json.dumps(self._lines), encoding="utf-8")
        self._modules.save(folder)
        self._targets.save(folder)
        if self._calls is not None:
            self._calls.save(folder)

    def _mark_at(self, frame: FrameType) -> Any:
        return self._marks.get((id(frame.f_code), frame.f_lineno)) or self._make_mark(frame)

    def _make_mark(self, frame: FrameType) -> Any:
        line = [self._files.name(frame.f_code.co_filename), frame.f_lineno, function_name(frame.f_code)]
        self._codes.append(frame.f_code)
        mark = self._marks[id(frame.f_code), frame.f_lineno] = self._numbered_mark(line)
        return mark

    def _numbered_mark(self, line: list[Any]) -> Any:
        mark = torch_private.record_function_fast(f"{PREFIX}{len(self._lines)}")
        self._lines.append(line)
        self._numbered.append(mark)
        return mark

    def _give_up(self, error: Exception) -> None:
        self.failed = self.failed or repr(error)
        self._forget_line()
        self.stop()

    def _exhaust(self) -> None:
        self.exhausted = True
        self._forget_line()
        self.stop()

    def _forget_line(self) -> None:
        """From here on no line is known."""
        with self._unknown:
            pass
        self._last = self._unknown
        self._modules.interrupt()

    def _look(self) -> None:
        """Notices a trace function that was set past `sys.settrace` (coverage does it in C).

        When that was is not known, so the last line that was marked is trusted nowhere.
        """
        ours = sys.gettrace() is self._call or self._paused or self._last is self._unknown
        if ours or not self.active or threading.get_ident() != self._thread:
            return
        self.interrupted = True
        for number, mark in enumerate(self._numbered):
            if mark is self._last:
                self._lines[number] = list(_UNKNOWN)
        for place in [place for place, mark in self._marks.items() if mark is self._last]:
            del self._marks[place]
        self._forget_line()

    def _make_settrace(self) -> Callable[[Any], None]:
        """What stands in for `sys.settrace` in a detail step: it does the same and notes the gap."""

        def noted(function: Any) -> None:
            if function is self._call:  # the script restores what it found
                self._touch(sys._getframe(1))
            else:
                self.interrupted = True
                self._forget_line()

        note = torch_private.hidden_from_dynamo(noted)

        def settrace(function: Any, /) -> None:
            if self.active and threading.get_ident() == self._thread:
                note(function)
            self._settrace(function)

        made: Callable[[Any], None] = torch_private.as_torch_code(settrace)
        return made

    def _trace_functions(self) -> tuple[Any, Any]:
        """The two functions for sys.settrace: for calls, and for what happens in a frame of the user's."""
        marks, known = self._marks, self._files.known
        module_call, enter_module = torch_private.module_call_code, self._modules.enter
        waiting, meet = self._targets.waiting, self._targets.meet
        saving = torch_private.watched_in_forward()[0] if self._calls is not None else None
        note_hooks = self._calls.note_hooks if self._calls is not None else None
        gettrace = sys.gettrace

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            try:
                if not self.active:  # kept by the script and set again later
                    self._settrace(None)
                    return None
                if waiting and id(frame.f_code) in waiting:
                    meet(frame)
                if frame.f_code is module_call:
                    return enter_module(frame)
                if frame.f_code is saving and note_hooks is not None:
                    note_hooks()
                file = frame.f_code.co_filename
                name = known[file] if file in known else self._name(file)
                return local if name is not None else None
            except Exception as error:  # it would be raised in the user's code
                self._fail(error)
                return None

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            try:
                return line(frame, event)
            except Exception as error:
                self._fail(error)
                return None

        def line(frame: FrameType, event: str) -> Any:
            if gettrace() is not call or not self.active:  # another one is set by now, blind to the user's other frames
                self._lost()
                return None
            at: FrameType | None = frame
            if event == "return":
                at = frame.f_back
                while at is not None and known.get(at.f_code.co_filename) is None:
                    at = at.f_back
            elif event != "line":
                return local
            if at is None:
                return local
            mark = marks.get((id(at.f_code), at.f_lineno)) or self._new_mark(at)
            if mark is self._last:
                return local
            self._last = mark
            self._left -= 1
            if self._left < 0:
                self._halt()
                return None
            with mark:
                pass
            return local

        torch_private.as_torch_code(line)
        torch_private.as_torch_code(call)
        return call, torch_private.as_torch_code(local)
