"""What torch.compile would make of a script that compiles nothing: its model, traced once as the process's last act.

Which module the step calls, and with what, is seen in the detail burst, from the trace function that names modules: no
hook is set on anything. The module is traced after everything was written and before the process leaves, so nothing
that happens in it can reach the run. `isolation` keeps the user's files and terminal out of it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from gpudoctor.recorder import isolation, module_ranges, stopping, torch_private
from gpudoctor.recorder.kept_inputs import CannotKeepError, KeptInputs
from gpudoctor.recorder.what_if_result import INDUCTOR, LIMIT_S, NONE, TRACE, Result
from gpudoctor.userfiles import UserFiles

MAX_ROOTS = 100  # a loop that calls hundreds of modules one by one has no model to be traced
_FAILURE_CHARS = 300


@dataclass(slots=True)
class _Root:
    """A module that is called from outside any other.

    Attributes:
        module: the module; gone when the user let it go.
        inputs: of its first call in the burst; or why they could not be kept.
        site: the user's line that called it.
        grad: gradients were recorded.
        inference: in inference mode.
        autocast: dtype by kind of device where autocast was on.
        spent_ns: time in its calls.
    """

    module: weakref.ref[Any]
    inputs: KeptInputs | str
    site: dict[str, Any]
    grad: bool
    inference: bool
    autocast: dict[str, torch.dtype]
    spent_ns: int = 0


class WhatIf:
    """Sees the modules that a step calls, and traces one of them in the end.

    Args:
        files: the user's files.
        mode: explain, inductor or none.
        limit_s: seconds it may take; None for the mode's own.

    Attributes:
        compiles: the script called torch.compile.
    """

    def __init__(self, files: UserFiles, mode: str, limit_s: float | None) -> None:
        self._files, self._mode = files, mode
        self._limit_s = LIMIT_S[mode] if limit_s is None else limit_s
        self._roots: dict[int, _Root] = {}
        self._current: tuple[_Root, int] | None = None
        self.compiles = False

    def note_compile_call(self) -> None:
        """The script calls torch.compile."""
        self.compiles = True
        self.forget()

    def forget(self) -> None:
        """A burst begins, or a forked child does: what was seen before does not count."""
        self._roots.clear()
        self._current = None

    def entered(self, frame: FrameType) -> None:
        """A module is called from outside any other; `frame` is that of `nn.Module.__call__`."""
        self._current = None
        if self.compiles or self._mode == NONE:
            return
        module = frame.f_locals["self"]
        root = self._roots.get(id(module))
        if root is None or root.module() is not module:
            if len(self._roots) >= MAX_ROOTS:
                return
            root = self._roots[id(module)] = self._see(module, frame)
        self._current = root, time.perf_counter_ns()

    def left(self) -> None:
        """The call of `entered` ended."""
        if self._current is not None:
            root, began = self._current
            root.spent_ns += time.perf_counter_ns() - began
            self._current = None

    def _see(self, module: Any, frame: FrameType) -> _Root:
        inputs: KeptInputs | str
        try:
            inputs = KeptInputs(frame.f_locals["args"], frame.f_locals["kwargs"])
        except CannotKeepError as error:
            inputs = str(error)
        except Exception as error:  # a class of the user's that does not let itself be looked at
            inputs = f"its input cannot be kept ({error!r})"
        autocast = {kind: torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)}
        site = self._files.site(frame.f_back)
        return _Root(
            weakref.ref(module), inputs, site, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast
        )

    # -- the end -------------------------------------------------------------------------------------------------

    def measure(self, folder: Path, ranks: int, compiled: bool, show: Callable[[str], None]) -> None:
        """Traces the model. Everything of the run's must be written; the process must leave afterwards.

        Args:
            folder: the rank's folder.
            ranks: how many processes train together.
            compiled: something was compiled in the run.
            show: takes a few words for whoever watches.
        """
        if self._mode == NONE:
            return
        result = Result(limit_s=self._limit_s)
        root = self._choose(result, ranks, compiled)
        if root is None:
            result.save(folder)
            return
        isolation.default_signals()
        scratch = isolation.scratch()
        result.running, result.scratch = True, str(scratch)
        result.save(folder)
        show(f"tracing the model as torch.compile would, {self._limit_s:.0f} s at most")
        isolation.bound(self._limit_s, lambda: _at_limit(result, folder), stopping.really_exit, scratch)
        isolation.mute()
        trace = _keep_log(folder)
        try:
            began = time.perf_counter()
            dynamo = importlib.import_module("torch._dynamo")  # before files are frozen: imports may write caches
            isolation.freeze((folder, scratch), programs=self._mode == INDUCTOR)
            self._explain(dynamo, root, result, began)
            if self._mode == INDUCTOR:
                result.save(folder)
                show(f"compiling the model with Inductor, {self._limit_s:.0f} s at most")
                _compile(root, result)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the model's too
            result.reason = f"the model could not be traced: {_text(error)}"
        result.running = False
        trace.close()
        result.save(folder)
        isolation.remove(scratch)

    def _choose(self, result: Result, ranks: int, compiled: bool) -> _Root | None:
        """The module to trace; None, and the reason in the result, when there is none."""
        roots = [root for root in self._roots.values() if root.module() is not None]
        whole = sum(root.spent_ns for root in roots)
        root = max(roots, key=lambda root: root.spent_ns, default=None)
        module = module_ranges.unwrapped(root.module()) if root is not None else None
        if self.compiles or compiled:
            result.reason = "the script compiles already"
        elif ranks > 1:
            result.reason = "several ranks train together"
        elif threading.current_thread() is not threading.main_thread():
            result.reason = "the training loop runs in a thread of its own, the script would go on meanwhile"
        elif root is None:
            result.reason = "no nn.Module was seen being called in a profiled step"
        elif isinstance(module, torch.jit.ScriptModule):
            result.reason = f"the model is a ScriptModule ({type(module).__name__}), compiled by TorchScript already"
        elif isinstance(root.inputs, str):
            result.reason = f"the model could not be captured: {root.inputs}"
        if root is not None:
            result.module = type(module).__qualname__.replace("<locals>.", "")
            result.file, result.line = root.site.get("file"), root.site.get("line")
            result.function = root.site.get("function")
            result.modules = len(roots)
            result.forward_share = root.spent_ns / whole if whole else None
        return root if result.reason is None else None

    def _explain(self, dynamo: Any, root: _Root, result: Result, began: float) -> None:
        args, kwargs = _inputs(root, result)
        with _as_called(root):
            found = dynamo.explain(module_ranges.unwrapped(root.module()))(*args, **kwargs)
        result.seconds = time.perf_counter() - began
        result.graph_ops = [len(ops) for ops in found.ops_per_graph or ()]
        result.guards = len(found.out_guards) if found.out_guards is not None else None


def _compile(root: _Root, result: Result) -> None:
    """Counts what the forward runs eagerly, and has Inductor compile it; its output code goes to the log."""
    module = module_ranges.unwrapped(root.module())
    try:
        args, kwargs = _inputs(root, result)
        with _as_called(root), torch_private.counted_kernels() as counted:
            module(*args, **kwargs)
        result.eager_kernels = counted[0]
        began = time.perf_counter()
        torch_private.compile_in_process()
        args, kwargs = _inputs(root, result)
        with _as_called(root):
            compiled: Any = torch.compile(module)
            compiled(*args, **kwargs)
        result.inductor_seconds = time.perf_counter() - began
    except BaseException as error:
        result.inductor_failure = _text(error)


def _inputs(root: _Root, result: Result) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(root.inputs, str):
        raise CannotKeepError(root.inputs)
    made = root.inputs.make()
    result.remade = root.inputs.remade
    return made


@contextmanager
def _as_called(root: _Root) -> Iterator[None]:
    """The modes in which the user's loop called the module."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(root.inference))
        stack.enter_context(torch.set_grad_enabled(root.grad))
        for kind, dtype in root.autocast.items():
            stack.enter_context(torch.autocast(kind, dtype=dtype))
        yield


def _at_limit(result: Result, folder: Path) -> None:
    """Called by the watchdog, beside the tracing."""
    result.running = False
    if result.seconds is None:
        result.reason = f"the time limit of {result.limit_s:g} s was reached"
    else:
        result.inductor_failure = f"the time limit of {result.limit_s:g} s was reached"
    result.save(folder)


def _keep_log(folder: Path) -> logging.FileHandler:
    """Has torch's structured log written into a file of its own: it tells breaks and their lines."""
    handler = logging.FileHandler(folder / TRACE, mode="w", encoding="utf-8", errors="replace")
    handler.setFormatter(torch_private.trace_formatter())
    handler.addFilter(lambda record: isinstance(getattr(record, "metadata", None), dict))
    logger = logging.getLogger("torch.__trace")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    return handler


def _text(error: BaseException) -> str:
    """The error in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return said if len(said) <= _FAILURE_CHARS else said[: _FAILURE_CHARS - 1] + "…"
