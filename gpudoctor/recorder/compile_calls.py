"""Notes every call of torch.compile: where, on what, with which arguments."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.compile_targets import CompileTargets, describe
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def install(
    patches: Patches,
    watch: Watch,
    files: UserFiles,
    targets: CompileTargets,
    live: Callable[[], bool],
    step: Callable[[], int],
    called: Callable[[], None] = lambda: None,
) -> None:
    """Wraps `torch.compile`; the compiled object it returns is untouched.

    Args:
        patches: to be undone with.
        watch: takes the calls.
        files: the user's files.
        targets: takes what was given to it.
        live: whether events count.
        step: number of the current step.
        called: told of each call.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        if model is not None and live():
            called()
            target, code, owner = describe(model)
            targets.add(code, owner)
            watch.add(
                "C",
                {
                    **files.site(sys._getframe(1)),
                    "target": target,
                    "target_file": files.name(code.co_filename) or code.co_filename if code is not None else None,
                    "target_line": code.co_firstlineno if code is not None else None,
                    "target_function": code.co_name if code is not None else None,
                    "in_place": getattr(model, "__name__", None) == "_call_impl",
                    "dynamic": str(kwargs.get("dynamic")),
                    "backend": _name(kwargs.get("backend", "inductor")),
                    "mode": kwargs.get("mode"),
                    "fullgraph": bool(kwargs.get("fullgraph", False)),
                    "step": step() or None,
                    "disabled": bool(kwargs.get("disable")) or torch_private.dynamo_disabled(),
                    "by_user": _by_user(files, sys._getframe(1)),
                },
            )
        return original(model, *args, **kwargs)

    patches.set(torch, "compile", compile)


def _by_user(files: UserFiles, frame: FrameType | None) -> bool:
    """Whether the user's code called it, through nothing but torch (a decorator, nn.Module.compile)."""
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    return frame is not None and files.name(frame.f_code.co_filename) is not None


def _name(backend: Any) -> str:
    return backend if isinstance(backend, str) else getattr(backend, "__qualname__", type(backend).__qualname__)
