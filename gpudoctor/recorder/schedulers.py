"""Notes where learning-rate schedulers are constructed: they change what a compiled optimizer step guards on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles


def install(patches: Patches, watch: Watch, files: UserFiles, live: Callable[[], bool]) -> None:
    """Wraps the constructor that all schedulers share."""
    original = LRScheduler.__init__

    @functools.wraps(original)
    def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(scheduler, *args, **kwargs)
        if live():
            site = files.site(sys._getframe(1))
            # OneCycleLR and CyclicLR have the flag and cycle momentum (or beta 1) by default
            cycles = bool(getattr(scheduler, "cycle_momentum", False))
            watch.add("H", {**site, "kind": type(scheduler).__qualname__, "cycles_momentum": cycles})

    patches.set(LRScheduler, "__init__", __init__)
