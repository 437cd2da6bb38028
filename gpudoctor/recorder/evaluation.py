"""Looks at the first module calls of an evaluation: do they build graphs that nobody needs?

Evaluation lies between the profiled steps, and a loop over a plain list has no DataLoader that would tell of it. What
tells is `eval()`, or a batch that is asked for though nothing was trained on the one before. From then on
`sys.settrace` waits for a few calls of a module and is switched off again; a whole run spends some dozen calls on it.
Each loop of an evaluation is waited for by itself: one may be guarded and the next one not.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.compiler import is_compiling

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.module_calls import ModuleCalls
from gpudoctor.recorder.patches import Patches

MAX_WATCHES = 12  # of a loop: each traces a few calls of a module; what the first ones do the others do as well
MAX_LOOPS = 16  # a script has one or two
CALLS_A_WATCH = 3  # of a line; the first calls may be of a metric or a transform that is a module too
MAX_CALLS_A_WATCH = 24  # of all lines: those of a loop's body, not of layers that are called one by one
MAX_EVENTS = 200_000  # Python calls: some 20 ms; an evaluation that calls no module is not waited for


class EvaluationWatch:
    """Traces a few module calls when an evaluation begins.

    Args:
        calls: takes the calls.
        live: whether events count now.
    """

    def __init__(self, calls: ModuleCalls, live: Callable[[], bool]) -> None:
        self._calls, self._live = calls, live
        self._entered = torch_private.hidden_from_dynamo(self._enter)
        self._returned = torch_private.hidden_from_dynamo(self._leave)
        self._off = torch_private.hidden_from_dynamo(self.disarm)
        self._failed = torch_private.hidden_from_dynamo(self._fail)
        self.begin()

    def begin(self) -> None:
        """What a process starts from, a forked one too."""
        self._watches: dict[Any, int] = {}
        self._lines: dict[Any, int] = {}
        self._left = 0
        self._seen = ""
        self._armed: Callable[..., Any] | None = None
        self._loop: Any = None
        self._line: Any = None
        self._seen_enough: set[Any] = set()

    def install(self, patches: Patches) -> None:
        """Notices that a module is switched to evaluation."""
        original = torch.nn.Module.eval
        live, arm = self._live, torch_private.hidden_from_dynamo(self.arm)

        @functools.wraps(original)
        def eval(self: Any) -> Any:  # noqa: A001
            if is_compiling():  # a constant to Dynamo, which then sees torch's own method
                return original(self)
            made = original(self)
            if live():
                arm("evaluation")
            return made

        patches.set(torch.nn.Module, "eval", eval)

    @property
    def failed(self) -> str | None:
        """The error that ended the watching."""
        return self._calls.failed

    def arm(self, seen: str, loop: Any = None) -> None:
        """Waits for the next module calls of the main thread, unless somebody else traces.

        Args:
            seen: what tells of the evaluation: evaluation (the module's mode) or validation (batches).
            loop: names the loop that asks for batches.
        """
        if self._armed is not None:
            self._loop = loop if loop is not None else self._loop
            return
        main = threading.current_thread() is threading.main_thread()
        watches = self._watches.get(loop, 0)
        full = watches >= MAX_WATCHES or (not watches and len(self._watches) > MAX_LOOPS)
        if full or not main or sys.gettrace() is not None:
            return
        if torch_private.sequence_number() is None or self.failed is not None:
            return
        if seen == "validation" and loop in self._seen_enough:
            return
        if seen == "evaluation":
            self._seen_enough.clear()
        self._watches[loop] = watches + 1
        self._lines.clear()
        self._loop, self._left, self._seen = loop, MAX_CALLS_A_WATCH, seen
        self._armed = self._trace_function()
        sys.settrace(self._armed)

    def disarm(self) -> None:
        """Stops waiting; a trace function that the script has set meanwhile stays."""
        if self._armed is None:
            return
        if sys.gettrace() is self._armed:
            sys.settrace(None)
        self._armed = None

    def pause(self) -> Callable[[], None] | None:
        """Does not trace the dataset's code; returns what goes on, None when nothing was traced."""
        armed = self._armed
        if armed is None or sys.gettrace() is not armed:
            return None
        sys.settrace(None)

        def resume() -> None:
            if self._armed is armed and sys.gettrace() is None:
                sys.settrace(armed)

        return resume

    def _enter(self, frame: FrameType) -> None:
        caller = frame.f_back
        self._line = (id(caller.f_code), caller.f_lineno) if caller is not None else None
        self._calls.enter(frame, compare=False)

    def _leave(self, result: Any) -> None:
        self._left -= 1
        count = self._lines[self._line] = self._lines.get(self._line, 0) + 1
        if self._calls.leave(result, self._seen) or self._left <= 0 or count >= CALLS_A_WATCH or self.failed:
            self._seen_enough.add(self._loop)
            self.disarm()

    def trained(self) -> None:
        """Backward is called: an evaluation is over, if there was one."""
        self._seen_enough.clear()
        self.disarm()

    def _fail(self, error: Exception) -> None:
        self._calls.give_up(error)
        self.disarm()

    def _trace_function(self) -> Callable[..., Any]:
        """What `sys.settrace` calls: it waits for `nn.Module.__call__`, and for the end of that call."""
        module_call, saving, compiler = torch_private.module_call_code, *torch_private.watched_in_forward()
        entered, returned, off, failed, note = (
            self._entered,
            self._returned,
            self._off,
            self._failed,
            self._calls.note_hooks,
        )
        inside: list[FrameType] = []
        left = MAX_EVENTS

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            code = frame.f_code
            left -= 1
            if inside:
                if code is saving:
                    note()
                elif code.co_filename == compiler:  # compiling takes millions of calls
                    off()
            elif code is module_call:
                try:
                    inside.append(frame)
                    entered(frame)
                except Exception as error:  # it would be raised in the user's code
                    failed(error)
                    return None
                frame.f_trace_lines = False
                return leave
            if left < 0:
                off()
            return None

        def leave(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "return":
                inside.clear()
                try:
                    returned(argument)
                except Exception as error:
                    failed(error)
            return leave

        torch_private.as_torch_code(leave)
        made: Callable[..., Any] = torch_private.as_torch_code(call)
        return made
