"""Notes calls by which a script waits for the device or empties the allocator's cache by hand.

A call costs two readings of the clock and one row in the watch. Calls that torch makes for itself (while it captures a
CUDA graph, say) are not the script's and are not noted. Collections by hand come from `gc_watch`.

Dynamo must see what it would see without us: it folds `is_compiling()` and goes on in the original.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.compiler import is_compiling

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def calls() -> list[tuple[Any, str, str]]:
    """The functions that are wrapped, those that this torch has: owner, name there, and how they are spelled."""
    spelled = (
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.cuda, "empty_cache", "torch.cuda.empty_cache"),
        (torch.cuda, "ipc_collect", "torch.cuda.ipc_collect"),
        (getattr(torch, "mps", None), "synchronize", "torch.mps.synchronize"),
        (getattr(torch, "mps", None), "empty_cache", "torch.mps.empty_cache"),
        (getattr(torch, "xpu", None), "synchronize", "torch.xpu.synchronize"),
        (getattr(torch, "xpu", None), "empty_cache", "torch.xpu.empty_cache"),
        (getattr(torch, "accelerator", None), "synchronize", "torch.accelerator.synchronize"),
        (getattr(torch, "accelerator", None), "empty_cache", "torch.accelerator.empty_cache"),
    )
    return [(owner, name, text) for owner, name, text in spelled if callable(getattr(owner, name, None))]


def install(patches: Patches, watch: Watch, files: UserFiles, live: Callable[[], bool]) -> None:
    """Wraps the functions.

    Args:
        patches: to be undone with.
        watch: takes the calls.
        files: the user's files.
        live: whether events count.
    """

    def note(what: str, started: int, ended: int, frame: FrameType | None) -> None:
        if frame is None:  # called by the interpreter itself, as at exit
            return
        caller = frame.f_code.co_filename
        if caller.startswith(_TORCH):
            return
        site = files.site(frame)
        by_user = files.name(caller) is not None
        place = (site.get("file"), site.get("line"), site.get("function"))
        watch.add("X", started, ended, what, *place, by_user, threading.get_ident())

    noted = torch_private.hidden_from_dynamo(note)
    for owner, name, text in calls():
        patches.set(owner, name, _wrapped(getattr(owner, name), text, watch, live, noted))


def _wrapped(
    original: Callable[..., Any], text: str, watch: Watch, live: Callable[[], bool], noted: Callable[..., Any]
) -> Callable[..., Any]:
    now = watch.now
    inside = threading.local()  # torch.accelerator's functions may call a backend's

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        if not live() or getattr(inside, "running", False):
            return original(*args, **kwargs)
        inside.running = True
        started = now()
        try:
            return original(*args, **kwargs)
        finally:
            inside.running = False
            noted(text, started, now(), sys._getframe().f_back)

    return call
