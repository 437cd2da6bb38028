"""Notes where optimizers are constructed, with the arguments that choose how they step."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.optim import Optimizer

from gpudoctor.recorder import memory_objects
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles

_CHOICES = ("foreach", "fused", "capturable")


def install(patches: Patches, watch: Watch, files: UserFiles, live: Callable[[], bool]) -> None:
    """Wraps the constructor that all optimizers share."""
    original = Optimizer.__init__

    @functools.wraps(original)
    def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(optimizer, *args, **kwargs)
        memory_objects.note(optimizer)
        if live():
            watch.add("Z", {**files.site(_caller(optimizer, sys._getframe(1))), **_described(optimizer)})

    patches.set(Optimizer, "__init__", __init__)


def _caller(optimizer: Any, frame: FrameType | None) -> FrameType | None:
    """Who constructs it: the frame behind the constructors of its own classes."""
    while frame is not None and frame.f_code.co_name == "__init__" and _first(frame) is optimizer:
        frame = frame.f_back
    return frame


def _first(frame: FrameType) -> Any:
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names else None


def _described(optimizer: Any) -> dict[str, Any]:
    """Class, how it steps where that was stated, and how many parameters and numbers it updates."""
    kind = type(optimizer)
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    stated = {name: optimizer.defaults.get(name) for name in _CHOICES}
    return {
        "kind": kind.__name__,  # as its steps are called in profiles
        "of_torch": kind.__module__.startswith("torch.optim"),
        **{name: value if isinstance(value, bool) else None for name, value in stated.items()},
        "parameters": len(parameters),
        "elements": sum(one.numel() for one in parameters),
    }
