"""The host: a clock, the operators and Python functions it is in, and what a profiler would write down of them.

One thread runs at a time: while autograd's thread works off a backward pass the main thread waits for it, as it does
in torch. So one clock is enough.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.synthetic.hardware import BARE, Costs

PROCESS, MAIN, AUTOGRAD = 4100, 4100, 4188
"""Process and thread ids, as the kernel gives them."""

_OWN = {str(path) for path in Path(__file__).parent.glob("*.py")}
"""Files of the machine itself: their functions are torch's, not the program's."""


@dataclass(slots=True)
class Event:
    """A line of the trace, times in nanoseconds."""

    category: str
    name: str
    process: int | str
    thread: int | str
    start_ns: int
    dur_ns: int
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the program something was asked for: the call's line and the first line of its function."""

    file: str
    line: int
    function: str
    def_line: int


@dataclass(slots=True, eq=False)
class _Open:
    """A Python function that has begun and not returned."""

    of: object
    event: Event


class Host:
    """Clock, call stack and recorder of events.

    Attributes:
        now: nanoseconds since the machine was switched on.
        thread: the thread that runs.
        costs: what things cost now; a profiler makes them dearer.
        events: what a profiler has written since it was started.
        recording: whether one runs.
        stacks: whether it records Python functions.
        marks: whether gpudoctor's recorder marks lines and modules.
        lines: places of the line marks, by id.
        paths: modules of the module marks, by id.
    """

    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.thread = MAIN
        self.costs: Costs = BARE
        self.events: list[Event] = []
        self.recording = self.stacks = self.marks = False
        self.lines: list[tuple[str | None, int | None, str | None]] = [(None, None, None)]
        self.paths: list[str] = []
        self.files: dict[str, str] = {}
        self._random = random.Random(seed)
        self._external = self._python = self._index = 0
        self._ops: list[int] = []
        self._aten = 0
        self._open: list[_Open] = []
        self._virtual: list[tuple[int, object, str]] = []
        self._started: set[FrameType] = set()
        self._marked: tuple[str, int] | None = None

    # -- time ----------------------------------------------------------------------------------------------------

    def jitter(self, ns: float, spread: float = 0.06) -> int:
        """About so many nanoseconds."""
        return max(0, round(ns * self._random.gauss(1.0, spread))) if ns else 0

    def think(self, ns: float) -> None:
        """The host does something that no profiler shows."""
        self.now += self.jitter(ns)

    # -- where the program is ------------------------------------------------------------------------------------

    def _program(self) -> list[FrameType]:
        """The program's frames, outermost first: everything between the run and the machine's own functions."""
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "run_program":
            if frame.f_code.co_filename not in _OWN and not frame.f_code.co_filename.endswith("contextlib.py"):
                frames.append(frame)
            frame = frame.f_back
        return frames[::-1]

    def place(self) -> Place | None:
        """The innermost line of the program; None on a thread of torch's, which has no Python."""
        if self.thread != MAIN or not (frames := self._program()):
            return None
        frame = frames[-1]
        return Place(self._shown(frame), frame.f_lineno, _qualified(frame), frame.f_code.co_firstlineno)

    def _shown(self, frame: FrameType) -> str:
        path = Path(frame.f_code.co_filename)
        self.files[path.name] = str(path)
        return path.name

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """A Python function of a library (`torch/optim/adamw.py(220): step`) or `nn.Module: Linear_0`."""
        self._virtual.append((len(self._program()), object(), name))
        try:
            yield
        finally:
            self._virtual.pop()

    @contextmanager
    def module(self, path: str, kind: str) -> Iterator[None]:
        """A call of an `nn.Module`: what it calls belongs to `path`."""
        if self.marks and path not in self.paths:
            self.paths.append(path)
        with self.inside(f"nn.Module: {kind}_0"):
            if self.marks:
                self._enter_python()
                with self.op(f"gpudoctor::module#{self.paths.index(path)}"):
                    yield
            else:
                yield

    def _stack(self) -> list[tuple[object, str]]:
        merged: list[tuple[object, str]] = []
        frames = self._program()
        for depth in range(len(frames) + 1):
            if depth:
                merged.append((frames[depth - 1], self._named(frames[depth - 1])))
            merged += [(key, name) for at, key, name in self._virtual if at == depth]
        return merged

    def _named(self, frame: FrameType) -> str:
        """torch shows a function's first line, except of one that ran already when the profiler was started."""
        line = frame.f_lineno if frame in self._started else frame.f_code.co_firstlineno
        return f"{self._shown(frame)}({line}): {frame.f_code.co_name}"

    def _enter_python(self) -> None:
        """Closes Python functions that have returned and opens those that were called since the last operator."""
        if not (self.recording and self.stacks) or self.thread != MAIN:
            return
        stack = self._stack()
        same = 0
        while same < min(len(stack), len(self._open)) and self._open[same].of is stack[same][0]:
            same += 1
        self.leave_python(same)
        for key, name in stack[same:]:
            self.now += self.jitter(self.costs.frame)
            parent = self._open[-1].event.args["Python id"] if self._open else None
            self._python += 1
            args = {"Python parent id": parent, "Python id": self._python}
            event = Event("python_function", name, PROCESS, self.thread, self.now, 0, args)
            self._open.append(_Open(key, event))
            self.now += 100

    def touch(self) -> None:
        """Something happens that is no operator: Python functions around it show."""
        if not self._aten:
            self._enter_python()
            self._mark("")

    def leave_python(self, kept: int = 0) -> None:
        """Closes the open Python functions but for the outermost few."""
        while len(self._open) > kept:
            event = self._open.pop().event
            event.dur_ns = self.now - event.start_ns
            self._write(event)
            self.now += 100

    # -- what is recorded ----------------------------------------------------------------------------------------

    def start(self, costs: Costs, stacks: bool, marks: bool = False) -> None:
        """A profiler is started."""
        self.events, self._open, self._index, self._marked = [], [], 0, None
        self.costs, self.recording, self.stacks, self.marks = costs, True, stacks, marks
        self._started = set(self._program())

    def stop(self) -> list[Event]:
        """The profiler is stopped: what it has seen."""
        self.leave_python()
        self.costs, self.recording, self.stacks, self.marks = BARE, False, False, False
        self._started = set()
        return self.events

    def _write(self, event: Event) -> None:
        if self.recording:
            event.args["Ev Idx"] = self._index
            self._index += 1
            self.events.append(event)

    def write(self, event: Event) -> None:
        """Adds a line that is not an operator's (runtime calls, device activities)."""
        if self.recording:
            self.events.append(event)

    @property
    def external(self) -> int | None:
        """The External id of the operator that the host is in."""
        return self._ops[-1] if self._ops else None

    @contextmanager
    def op(self, name: str, category: str = "cpu_op", **args: Any) -> Iterator[Event]:
        """An operator or a range, and all that happens in it.

        Args:
            name: its name.
            category: cpu_op or user_annotation.
            args: more of its `args`.
        """
        called = not self._aten  # by Python, not by another operator
        if called:
            self.think(self.costs.python)
            self._enter_python()
            self._mark(name)
        self._external += 1
        shown = {"External id": self._external, "Record function id": 0} | args
        event = Event(category, name, PROCESS, self.thread, self.now, 0, shown)
        self._ops.append(self._external)
        inner = category == "cpu_op" and not name.startswith("gpudoctor::")
        self._aten += inner
        self.now += self.jitter(self.costs.enter)
        try:
            yield event
        finally:
            self.now += self.jitter(self.costs.leave)
            self._aten -= inner
            self._ops.pop()
            event.dur_ns = self.now - event.start_ns
            self._write(event)

    def _mark(self, name: str) -> None:
        """The recorder's mark of the line that runs from here on."""
        if not self.marks or name.startswith("gpudoctor::") or (place := self.place()) is None:
            return
        if self._marked == (place.file, place.line):
            return
        self._marked = (place.file, place.line)
        said = (place.file, place.line, place.function)
        if said not in self.lines:
            self.lines.append(said)
        self._external += 1
        args = {"External id": self._external, "Record function id": 0}
        mark = f"gpudoctor::line#{self.lines.index(said)}"
        self._write(Event("cpu_op", mark, PROCESS, self.thread, self.now, 300, args))
        self.now += 600

    @contextmanager
    def on_thread(self, thread: int) -> Iterator[None]:
        """Another thread runs while this one waits for it."""
        before = self.thread, self._ops, self._aten
        self.thread, self._ops, self._aten = thread, [], 0
        try:
            yield
        finally:
            self.thread, self._ops, self._aten = before


def _qualified(frame: FrameType) -> str:
    name = frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name
    return name.replace(".<locals>", "")
