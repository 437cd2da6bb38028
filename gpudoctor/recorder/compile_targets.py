"""Which of the things given to torch.compile run uncompiled all the same, and through which of the user's lines.

Code that Dynamo compiled runs as a code object of its own. So when the trace function of a detail step meets the
target's original code, on the very module that was given to torch.compile, that code runs eagerly.
"""

from __future__ import annotations

import inspect
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from gpudoctor.recorder import torch_private
from gpudoctor.userfiles import UserFiles

FILE = "compile_targets.json"


def describe(model: Any) -> tuple[str, Any, Any]:
    """Name, code object and owning module of what torch.compile was given: a module, a method, a function."""
    if is_module(model):
        return type(model).__qualname__, getattr(type(model).forward, "__code__", None), model
    owner: Any = getattr(model, "__self__", None)
    if is_module(owner) and model.__name__ == "_call_impl":  # nn.Module.compile()
        return type(owner).__qualname__, getattr(type(owner).forward, "__code__", None), owner
    function = inspect.unwrap(model) if callable(model) else model
    name = getattr(model, "__qualname__", type(model).__qualname__)
    code = getattr(function, "__code__", None)
    return name.replace("<locals>.", ""), code, owner if is_module(owner) else None


def is_module(value: Any) -> bool:
    """Whether a value is a module itself; `isinstance` would follow a weak proxy."""
    return issubclass(type(value), torch.nn.Module)


class CompileTargets:
    """The calls of torch.compile, and what a detail step shows of their targets.

    Attributes:
        waiting: targets that were not yet seen to run eagerly, by the identity of their code object (Dynamo makes code
            that cannot be hashed); the trace function looks here.
    """

    def __init__(self, files: UserFiles) -> None:
        self._files = files
        self.waiting: dict[int, list[tuple[int, Any]]] = {}
        self._codes: list[CodeType] = []  # kept alive, so that an identity means one of them
        self._seen: list[dict[str, Any] | None] = []
        self._watched = False
        self.meet: Callable[[FrameType], None] = torch_private.hidden_from_dynamo(self._meet)

    def add(self, code: CodeType | None, owner: Any) -> None:
        """Notes the next call of torch.compile; its module is held weakly."""
        number = len(self._seen)
        self._seen.append(None)
        if code is None:
            return
        held = None if owner is None else weakref.ref(owner)
        self._codes.append(code)
        waiting = self.waiting.setdefault(id(code), [])
        # the same target compiled again (each step, perhaps) needs to be looked for once
        if not any((None if ref is None else ref()) is owner for _, ref in waiting):
            waiting.append((number, held))

    def watched(self) -> None:
        """A detail step begins."""
        self._watched = True

    def _meet(self, frame: FrameType) -> None:
        if torch_private.dynamo_disabled():  # a stance, for the time being
            return
        left = []
        for number, held in self.waiting.get(id(frame.f_code), ()):
            owner = None if held is None else held()
            if held is not None and (owner is None or _self_of(frame) is not owner):
                left.append((number, held))
                continue
            self._seen[number] = self._way_in(frame, owner)
        if left:
            self.waiting[id(frame.f_code)] = left
        else:
            self.waiting.pop(id(frame.f_code), None)

    def _way_in(self, frame: FrameType, owner: Any) -> dict[str, Any]:
        """The user's line that entered the target: outside of the module's own methods, which are named."""
        method, outermost, at = None, frame, frame.f_back
        while at is not None:
            if self._files.name(at.f_code.co_filename) is not None:
                if owner is None or _self_of(at) is not owner:
                    break
                method, outermost = at.f_code.co_name, at
            at = at.f_back
        generator = bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
        return {**self._files.site(outermost.f_back), "method": method, "generator": generator}

    def save(self, folder: Path) -> None:
        """Writes `compile_targets.json`: whether a detail step was watched, and for call n of torch.compile
        `{file, line, function, method}` of the line that ran its target eagerly, or null."""
        content = {"watched": self._watched, "disabled": torch_private.dynamo_disabled(), "eager": self._seen}
        (folder / FILE).write_text(json.dumps(content), encoding="utf-8")

    def forget(self) -> None:
        """A forked child has seen nothing yet."""
        self._seen = [None] * len(self._seen)
        self._watched = False


def _self_of(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
