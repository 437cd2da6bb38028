"""Notes where gradient scalers are constructed, and which of their steps they skip.

Nothing is read from a device: whether a step is skipped is what the scaler itself has just asked, and its scale follows
from that and from how it was constructed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles


class Scalers:
    """Numbers the scalers of a process and tells the watch of them.

    Args:
        watch: takes constructions and steps.
        files: the user's files.
    """

    def __init__(self, watch: Watch, files: UserFiles) -> None:
        self._watch, self._files = watch, files
        self._numbers: dict[int, int] = {}

    def forget(self) -> None:
        """A forked child numbers its own."""
        self._numbers.clear()

    def constructed(self, scaler: Any, site: dict[str, object]) -> None:
        """A scaler came to be; an id that is used again is another one."""
        number = self._numbers[id(scaler)] = len(self._numbers)
        facts = {
            "scaler": number,
            "enabled": bool(getattr(scaler, "_enabled", True)),
            "device_kind": str(getattr(scaler, "_device", "cuda")),
            "init_scale": getattr(scaler, "_init_scale", None),
            "growth_factor": getattr(scaler, "_growth_factor", None),
            "backoff_factor": getattr(scaler, "_backoff_factor", None),
            "growth_interval": getattr(scaler, "_growth_interval", None),
        }
        self._watch.add("A", site | facts)

    def stepped(self, scaler: Any, skipped: bool) -> None:
        """A scaler had an optimizer step, or skipped it because gradients were not finite."""
        if id(scaler) not in self._numbers:  # made before the recorder was there
            self.constructed(scaler, {})
        now = self._watch.now()
        self._watch.add("V", now, now, self._numbers[id(scaler)], skipped)

    def install(self, patches: Patches, live: Callable[[], bool]) -> None:
        """Wraps the constructor that all scalers share."""
        original = torch.amp.GradScaler.__init__

        @functools.wraps(original)
        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(scaler, *args, **kwargs)
            if live():
                self.constructed(scaler, self._files.site(sys._getframe(1)))

        patches.set(torch.amp.GradScaler, "__init__", __init__)


def autocast_around(outputs: Any, files: UserFiles) -> dict[str, object] | None:
    """Autocast's dtype for the device of what is differentiated, and the user's line; None when it is off."""
    device = getattr(outputs[0] if outputs else None, "device", None)
    if device is None or not torch.is_autocast_enabled(device.type):
        return None
    return {
        **files.site(sys._getframe(1)),
        "autocast": str(torch.get_autocast_dtype(device.type)).removeprefix("torch."),
    }
