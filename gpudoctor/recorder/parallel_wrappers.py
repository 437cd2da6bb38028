"""Notes where DataParallel and DistributedDataParallel are put around a model, and with which arguments."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.nn.parallel import DataParallel, DistributedDataParallel

from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles


def install(patches: Patches, watch: Watch, files: UserFiles, live: Callable[[], bool]) -> None:
    """Wraps both constructors."""
    for kind in (DataParallel, DistributedDataParallel):
        patches.set(kind, "__init__", _noting(kind, watch, files, live))


def _noting(kind: Any, watch: Watch, files: UserFiles, live: Callable[[], bool]) -> Callable[..., None]:
    original = kind.__init__

    @functools.wraps(original)
    def __init__(wrapper: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(wrapper, *args, **kwargs)
        if live():
            site = files.site(_caller(wrapper, sys._getframe().f_back))
            watch.add("R", {"kind": kind.__name__, **site, **_described(wrapper)})

    return __init__


def _caller(wrapper: Any, frame: FrameType | None) -> FrameType | None:
    """Who constructs it: the frame behind the constructors of its own classes."""
    while frame is not None and frame.f_code.co_name == "__init__":
        names = frame.f_code.co_varnames
        if not names or frame.f_locals.get(names[0]) is not wrapper:
            break
        frame = frame.f_back
    return frame


def _described(wrapper: Any) -> dict[str, Any]:
    """Devices, parameters to train, and what DistributedDataParallel was told."""
    devices = getattr(wrapper, "device_ids", None)
    return {
        "devices": len(devices) if devices is not None else None,
        "parameters": sum(one.requires_grad for one in wrapper.module.parameters()),
        "find_unused": getattr(wrapper, "find_unused_parameters", None),
        "static_graph": getattr(wrapper, "static_graph", None),
    }
