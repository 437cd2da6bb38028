"""What a call stack of the allocator says: whose line asked, and what kind of work it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpudoctor.ingest.snapshot.contents import Frame
from gpudoctor.ingest.torch_trace import FilesElsewhere

Work = Literal["optimizer", "backward", "setup", "input", "workspace", "forward", "unknown"]

_PYTHON = re.compile(r"\.py$|^<|^cell ")
_OPTIM = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_AUTOGRAD = re.compile(r"[/\\]torch[/\\](?:_tensor|autograd[/\\]\w+)\.py$")
_MODULE = re.compile(r"[/\\]torch[/\\]nn[/\\](?:modules[/\\]|parameter|init)")
_BACKWARD_CALLS = frozenset({"backward", "_engine_run_backward", "grad"})
_SETUP_CALLS = frozenset(
    {"_apply", "convert", "__init__", "reset_parameters", "load_state_dict", "_load_from_state_dict"}
)
_ENGINE = re.compile(r"torch::autograd::(?:Engine|python::PythonEngine)::(?:thread_main|evaluate_function|execute)")
_WORKSPACE = re.compile(r"[wW]orkspace|getCurrentCUDABlas|cudnn.*(?:search|find)Algorithm", re.ASCII)
_MOVED = re.compile(r"THPVariable_(?:to|cuda)\b")


@dataclass(frozen=True, slots=True)
class Place:
    """Who asked for memory.

    Attributes:
        file, line, function: innermost call in the user's own code; None, 0 and None without one.
        work: what the call was part of.
    """

    file: str | None
    line: int
    function: str | None
    work: Work


NOWHERE = Place(None, 0, None, "unknown")


def places(stacks: Sequence[tuple[Frame, ...]], name: Callable[[str], str | None] | None = None) -> list[Place]:
    """The place of each stack.

    Args:
        stacks: innermost call first; C++ frames may stand between the Python ones.
        name: gives a file's shown name, None for a library's; the default knows names only.
    """
    shown = name or FilesElsewhere().name
    return [_place(stack, shown) for stack in stacks]


def _place(stack: tuple[Frame, ...], name: Callable[[str], str | None]) -> Place:
    if not stack:
        return NOWHERE
    python = [frame for frame in stack if _PYTHON.search(frame[0])]
    mine = next(((shown, line, call) for file, line, call in python if (shown := name(file))), None)
    work = _work(stack, python, mine)
    return Place(*mine, work) if mine else Place(None, 0, None, work)


def _work(stack: tuple[Frame, ...], python: Sequence[Frame], mine: tuple[str, int, str] | None) -> Work:
    """What the call was part of: the innermost sign counts, as an optimizer may run a closure with a backward in it."""
    if any(_WORKSPACE.search(call) for file, _, call in stack if not _PYTHON.search(file)):
        return "workspace"
    for file, _, call in stack:
        if said := _sign(file, call, mine is not None):
            return said
    if not python:
        return "unknown"
    return "input" if any(_MOVED.search(call) for _, _, call in stack) else "forward"


def _sign(file: str, call: str, users: bool) -> Work | None:
    """What one call says of the work that it is part of; None where it says nothing."""
    if _OPTIM.search(file):
        return "optimizer"
    if _ENGINE.search(call) or (call in _BACKWARD_CALLS and _AUTOGRAD.search(file)):
        return "backward"
    if call in _SETUP_CALLS and (_MODULE.search(file) or (users and call == "__init__")):
        return "setup"
    return "forward" if call.startswith("forward") else None
