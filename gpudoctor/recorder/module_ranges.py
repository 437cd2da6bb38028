"""Which nn.Module instance every operator of a detail step ran in, by its dotted path.

Global forward hooks would show it too, but Dynamo guards on them: one compile becomes three. So the trace function that
marks lines also sees each call of `nn.Module.__call__` and opens an empty range for it in the profile. Code that is
compiled makes no such calls and is left as it is: its operators have the path of the compiled module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import nn

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.padded_inputs import MASKS

if TYPE_CHECKING:
    from gpudoctor.recorder.module_calls import ModuleCalls
    from gpudoctor.recorder.padded_inputs import PaddedInputs
    from gpudoctor.recorder.what_if import WhatIf

FILE = "modules.json"
PREFIX = "gpudoctor::module#"
_WRAPPERS = {
    "AveragedModel": "module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
}
"""Modules that stand around the user's own, and the attribute that holds it: no part of a path."""


_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


class ModuleRanges:
    """Opens and closes ranges as modules are called, and saves which range is which module.

    `enter` runs inside the user's calls, where Dynamo looks at every Python frame: it bears the file name of torch's
    own code and calls nothing but C functions, except for a module seen for the first time and for one that is called
    from outside any other.

    Args:
        what_if: is told of those.
        calls: is told of those, and of what they return.
        padded: is told of embeddings with padding and of calls with a mask.
    """

    def __init__(
        self,
        what_if: WhatIf | None = None,
        calls: ModuleCalls | None = None,
        padded: PaddedInputs | None = None,
    ) -> None:
        self._what_if, self._calls, self._padded = what_if, calls, padded
        self._names: dict[int, str] = {}
        self._seen: list[Any] = []  # keeps the modules of a burst alive, so that an id means one module
        self._labels: dict[int, tuple[str, Any]] = {}
        self._paths: list[str | None] = []
        self._open: list[tuple[FrameType, Any]] = []
        self._left_open: list[tuple[FrameType, Any]] = []
        self._new_name = torch_private.hidden_from_dynamo(self._make_name)
        self.enter = self._trace_function()

    def start(self, user_frames: Iterable[FrameType]) -> None:
        """Begins a burst: notes how the user's frames call their modules."""
        for frame in user_frames:
            self._note_variables(frame)
        if self._what_if is not None:
            self._what_if.forget()
        if self._calls is not None:
            self._calls.begin_burst()
        if self._padded is not None:
            self._padded.begin_burst()

    def _note_variables(self, frame: FrameType) -> None:
        for names in (frame.f_locals, frame.f_globals):
            for name, value in list(names.items()):
                self._label(name, value)
                if name == "self" and not is_module(value):  # a trainer that holds the model
                    for inner_name, inner in _attributes(value):
                        self._label(inner_name, inner)

    def _label(self, name: str, value: Any) -> None:
        if is_module(value) and name != "self" and not name.startswith("__"):
            self._labels.setdefault(id(value), (name, value))

    def interrupt(self) -> None:
        """Closes the open ranges: from here on nobody sees where modules end."""
        while self._open:
            self._open.pop()[1].__exit__(None, None, None)

    def stop(self) -> None:
        """Ends a burst: names the modules seen in it, and lets go of them."""
        self.interrupt()
        try:
            self._paths += paths(self._seen, self._labels)
        except Exception:  # a module that is not built as torch builds them: unknown paths are no reason to stop
            self._paths += [None] * len(self._seen)
        self._drop()

    def forget(self) -> None:
        """A forked child leaves ranges and names to its parent."""
        self._left_open += self._open  # to end one would write into the parent's session
        self._open.clear()
        self._drop()
        if self._what_if is not None:
            self._what_if.forget()
        if self._padded is not None:
            self._padded.forget()

    def _drop(self) -> None:
        self._names.clear()
        self._seen.clear()
        self._labels.clear()

    def save(self, folder: Path) -> None:
        """Writes `modules.json`: the path for range n."""
        (folder / FILE).write_text(json.dumps(self._paths), encoding="utf-8")
        if self._padded is not None:
            self._padded.count(self._paths)
            self._padded.save(folder)

    def _root_entered(self, frame: FrameType) -> None:
        if self._what_if is not None:
            self._what_if.entered(frame)
        if self._calls is not None:
            self._calls.enter(frame, compare=True)

    def _root_left(self, result: Any) -> None:
        if self._what_if is not None:
            self._what_if.left()
        if self._calls is not None:
            self._calls.leave(result, "profiled")

    def _make_name(self, module: Any) -> str:
        number = len(self._paths) + len(self._seen)
        name = self._names[id(module)] = f"{PREFIX}{number}"
        self._seen.append(module)
        if self._padded is not None:
            self._padded.named(module, number)
        return name

    def _padding_seen(self, frame: FrameType) -> None:
        if self._padded is not None:
            self._padded.entered(frame, int(self._names[id(frame.f_locals["self"])].removeprefix(PREFIX)))

    def _trace_function(self) -> Callable[[FrameType], Any]:
        """What `sys.settrace` calls for a frame of `nn.Module.__call__`."""
        names, opened, new_name = self._names, self._open, self._new_name
        fast = torch_private.record_function_fast
        root_entered = torch_private.hidden_from_dynamo(self._root_entered)
        root_left = torch_private.hidden_from_dynamo(self._root_left)
        padding_seen = torch_private.hidden_from_dynamo(self._padding_seen)
        with_padding, masks = ({}, frozenset()) if self._padded is None else (self._padded.embeddings, MASKS)

        def enter(frame: FrameType) -> Any:
            module, keywords = frame.f_locals["self"], frame.f_locals.get("kwargs")
            if not opened:
                root_entered(frame)
            entered = fast(names.get(id(module)) or new_name(module))
            if id(module) in with_padding or (keywords and not masks.isdisjoint(keywords)):
                padding_seen(frame)
            entered.__enter__()
            opened.append((frame, entered))
            frame.f_trace_lines = False
            return leave

        def leave(frame: FrameType, event: str, argument: Any) -> Any:
            if event != "return":
                return leave
            for owner, _ in opened:
                if owner is frame:
                    break
            else:  # closed by an interruption
                return leave
            owner = None  # type: ignore[assignment]
            while owner is not frame:
                owner, entered = opened.pop()
                entered.__exit__(None, None, None)
            if not opened:
                root_left(argument)
            return leave

        torch_private.as_torch_code(leave)
        made: Callable[[FrameType], Any] = torch_private.as_torch_code(enter)
        return made


def is_module(value: Any) -> bool:
    """Whether a value is a module itself; `isinstance` would follow a weak proxy."""
    return issubclass(type(value), nn.Module)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    try:
        return list(object.__getattribute__(value, "__dict__").items())
    except AttributeError:  # slots
        return []


def paths(seen: list[Any], labels: Mapping[int, tuple[str, Any]]) -> list[str | None]:
    """The dotted path of each module, from the outermost module that holds it.

    A model's own name is left out (`encoder.layers.3`) unless modules of several models were called; a module that
    nothing holds is called by the user's variable, or its class. A shared module has the first of its paths. A graph
    that nothing holds has none: the compiler made it, and it belongs to the module that was compiled.

    Args:
        seen: the modules that were called.
        labels: the user's variables that hold modules: name and module, by id.
    """
    roots = {id(module): module for module in seen} | {key: module for key, (_, module) in labels.items()}
    trees = sorted(((root, dict(_walk(root))) for root in roots.values()), key=lambda pair: -len(pair[1]))
    places: dict[int, tuple[Any, str]] = {}
    for root, tree in trees:
        for identity, path in tree.items():
            places.setdefault(identity, (root, path))
    holders = {id(places[id(module)][0]) for module in seen if places[id(module)][1]}
    found: list[str | None] = []
    for module in seen:
        root, path = places[id(module)]
        if not path and id(root) not in labels and _is_graph(root):
            found.append(None)
            continue
        label = labels[id(root)][0] if id(root) in labels else type(unwrapped(root)).__name__
        # a bare list of modules has no model around it: a path would be nothing but a number
        named = len(holders) > 1 or type(root) in _CONTAINERS
        found.append(label if not path else f"{label}.{path}" if named else path)
    return found


def _walk(root: Any) -> Iterator[tuple[int, str]]:
    """Identity and path of every module in a tree, the first path of each; wrappers add nothing to a path."""
    waiting: list[tuple[Any, str]] = [(root, "")]
    known: set[int] = set()
    while waiting:
        module, path = waiting.pop()
        if id(module) in known:
            continue
        known.add(id(module))
        yield id(module), path
        wrapped = _WRAPPERS.get(type(module).__name__)
        children = module.__dict__.get("_modules") or {}
        for name, child in reversed(list(children.items())):
            if child is not None:
                waiting.append((child, path if name == wrapped else f"{path}.{name}" if path else name))


def _is_graph(module: Any) -> bool:
    return any(base.__name__ == "GraphModule" for base in type(module).__mro__)


def unwrapped(module: Any) -> Any:
    """The user's own module inside wrappers such as DistributedDataParallel."""
    while (inside := (module.__dict__.get("_modules") or {}).get(_WRAPPERS.get(type(module).__name__))) is not None:
        module = inside
    return module
