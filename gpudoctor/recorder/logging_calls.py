"""Times what scripts print, log and save, with the user's line: whole-run, a microsecond a call.

Only attributes are replaced that callers look up when they call, so `from … import` of a class sees them too. `print`
itself stays: it ends in `sys.stdout.write`. What cannot be replaced (a C type) is left.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.tally import Tally
from gpudoctor.userfiles import UserFiles, function_name

MAX_FRAMES = 12  # user frames that are kept of a call: the loop is rarely further out

_FUNCTIONS = (
    ("json", "dump", "save"),
    ("os", "fsync", "save"),
    ("numpy", "save", "save"),
    ("numpy", "savez", "save"),
    ("numpy", "savez_compressed", "save"),
    ("numpy", "savetxt", "save"),
    ("safetensors.torch", "save_file", "checkpoint"),
    ("torch.distributed.checkpoint", "save", "checkpoint"),
    ("torchvision.utils", "save_image", "save"),
)
_METHODS = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", ("add_*", "flush"), "tracker"),
    ("tensorboardX.writer", "SummaryWriter", ("add_*", "flush"), "tracker"),
    ("wandb.sdk.wandb_run", "Run", ("log",), "tracker"),
    ("mlflow.tracking.client", "MlflowClient", ("log_*",), "tracker"),
    ("matplotlib.figure", "Figure", ("savefig",), "plot"),
    ("torchmetrics.metric", "Metric", ("forward",), "metric"),
    ("tqdm.std", "tqdm", ("display", "set_postfix"), "print"),
)


class LoggingCalls:
    """Wraps the functions; `look_again` does so for modules that the script imported since.

    Args:
        patches: takes the patches.
        tally: where times go.
        files: names the user's files.
        live: whether events count now.
        now: the recording's clock.
    """

    def __init__(
        self, patches: Patches, tally: Tally, files: UserFiles, live: Callable[[], bool], now: Callable[[], int]
    ) -> None:
        self._patches, self._tally, self._files, self._live, self._now = patches, tally, files, live, now
        self._main = threading.main_thread().ident
        self._inside = False
        self._waiting: dict[str, list[Callable[[Any], None]]] = {}

    def install(self) -> None:
        """Wraps what is loaded; the rest waits for its module."""
        save = self._timed(torch.save, "checkpoint", "torch.save")
        for owner in (torch, torch.serialization):
            self._patches.set(owner, "save", save)
        self._patches.set(logging.Handler, "handle", self._timed(logging.Handler.handle, "log", "logging"))
        for stream in (sys.stdout, sys.stderr):
            self._wrap_stream(stream)
        for module, name, kind in _FUNCTIONS:
            self._when(module, functools.partial(self._wrap, name=name, kind=kind))
        for module, cls, names, kind in _METHODS:
            self._when(module, functools.partial(self._wrap_class, cls=cls, names=names, kind=kind))
        self.look_again()

    def look_again(self) -> None:
        """Wraps what was imported meanwhile; a look-up for each module that is missing."""
        for name in [name for name in self._waiting if name in sys.modules]:
            if getattr(sys.modules[name].__spec__, "_initializing", False):
                continue
            for wrap in self._waiting.pop(name):
                wrap(sys.modules[name])

    def _when(self, module: str, wrap: Callable[[Any], None]) -> None:
        self._waiting.setdefault(module, []).append(wrap)

    def _wrap(self, module: Any, name: str, kind: str) -> None:
        function = getattr(module, name, None)
        if function is not None:
            self._patches.set(module, name, self._timed(function, kind, f"{module.__name__}.{name}"))

    def _wrap_class(self, module: Any, cls: str, names: tuple[str, ...], kind: str) -> None:
        owner = getattr(module, cls, None)
        for name, method in list(vars(owner).items()) if owner is not None else ():
            wanted = any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in names)
            if wanted and callable(method):
                self._patches.set(owner, name, self._timed(method, kind, f"{cls}.{name}"))

    def _wrap_stream(self, stream: Any) -> None:
        """Gives a stream a `write` of its own; one that has no room for attributes is left."""
        for name in ("write", "flush"):
            try:
                setattr(stream, name, made := self._timed(getattr(stream, name), "print", "print"))
            except (AttributeError, TypeError):
                return

            def restore(name: str = name, made: Any = made) -> None:
                if vars(stream).get(name) is made:
                    delattr(stream, name)

            self._patches.on_undo(restore)

    def _timed(self, function: Any, kind: str, name: str) -> Any:
        live, now, ident, main = self._live, self._now, threading.get_ident, self._main
        note = torch_private.hidden_from_dynamo(self._note)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or ident() != main or not live():
                return function(*args, **kwargs)
            self._inside = True
            started = now()
            try:
                return function(*args, **kwargs)
            finally:
                ended = now()
                self._inside = False
                note(kind, name, started, ended, sys._getframe().f_back)

        return torch_private.as_torch_code(call)

    def _note(self, kind: str, name: str, started: int, ended: int, frame: FrameType | None) -> None:
        # the interpreter itself writes too, without a frame: an error at exit, a signal
        user = self._files.frame(frame)
        if user is None:
            return
        key = (name, id(user.f_code), user.f_lineno)
        number = self._tally.number(key)
        if number is None:
            about = {"kind": kind, "name": name, "stack": stack(user, self._files)}
            number = self._tally.number(key, about)
        if number is not None:
            self._tally.add(number, started, ended)


def stack(frame: FrameType | None, files: UserFiles) -> list[list[Any]]:
    """The user's frames from `frame` outwards: file, line, function."""
    found: list[list[Any]] = []
    while frame is not None and len(found) < MAX_FRAMES:
        name = files.name(frame.f_code.co_filename)
        if name is not None:
            found.append([name, frame.f_lineno, function_name(frame.f_code)])
        frame = frame.f_back
    return found
