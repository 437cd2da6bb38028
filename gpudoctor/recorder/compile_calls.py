"""Notes every call of torch.compile: where, on what, with which arguments."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles


def install(
    patches: Patches,
    watch: Watch,
    files: UserFiles,
    live: Callable[[], bool],
    step: Callable[[], int],
    called: Callable[[], None] = lambda: None,
) -> None:
    """Wraps `torch.compile`; the compiled object it returns is untouched.

    Args:
        patches: to be undone with.
        watch: takes the calls.
        files: the user's files.
        live: whether events count.
        step: number of the current step.
        called: told of each call.
    """
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        if model is not None and live():
            called()
            target, code = describe(model)
            watch.add(
                "C",
                {
                    **files.site(sys._getframe(1)),
                    "target": target,
                    "target_file": files.name(code.co_filename) or code.co_filename if code is not None else None,
                    "target_line": code.co_firstlineno if code is not None else None,
                    "dynamic": str(kwargs.get("dynamic")),
                    "backend": _name(kwargs.get("backend", "inductor")),
                    "mode": kwargs.get("mode"),
                    "fullgraph": bool(kwargs.get("fullgraph", False)),
                    "step": step() or None,
                },
            )
        return original(model, *args, **kwargs)

    patches.set(torch, "compile", compile)


def describe(model: Any) -> tuple[str, Any]:
    """Name and code object of what torch.compile was given: a module's forward, a method, a function."""
    if issubclass(type(model), torch.nn.Module):  # isinstance would follow a weak proxy
        return type(model).__qualname__, getattr(type(model).forward, "__code__", None)
    owner = getattr(model, "__self__", None)
    if owner is not None and issubclass(type(owner), torch.nn.Module) and model.__name__ == "_call_impl":
        return type(owner).__qualname__, getattr(type(owner).forward, "__code__", None)  # nn.Module.compile()
    function = inspect.unwrap(model) if callable(model) else model
    name = getattr(model, "__qualname__", type(model).__qualname__)
    return name.replace("<locals>.", ""), getattr(function, "__code__", None)


def _name(backend: Any) -> str:
    return backend if isinstance(backend, str) else getattr(backend, "__qualname__", type(backend).__qualname__)
