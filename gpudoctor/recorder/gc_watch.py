"""Times Python's garbage collections, by generation; those that the script asks for itself are told apart.

A collection begins wherever something is allocated, in the recorder's own code too, in the middle of a loop over one of
its tables or of a write. So the callback changes its own sums only: it meets no file first, and writes nothing.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.tally import Tally
from gpudoctor.userfiles import UserFiles, function_name


def watch(patches: Patches, tally: Tally, files: UserFiles, live: Callable[[], bool], now: Callable[[], int]) -> None:
    """Adds a callback to the collector: 1 µs a collection, of which most are of some hundred objects."""
    begun: list[Any] = [0, False, None, 0]  # when, whether the script asked, the user's code and its line

    def callback(phase: str, info: dict[str, int]) -> None:
        if not live():
            return
        if phase == "start":
            # an automatic collection of all objects has that generation's counter over its threshold
            explicit = info["generation"] == 2 and gc.get_count()[2] <= gc.get_threshold()[2]
            frame = sys._getframe().f_back
            while frame is not None and files.known.get(frame.f_code.co_filename) is None:
                frame = frame.f_back
            begun[1:] = [explicit, frame and frame.f_code, frame.f_lineno if frame else 0]
            begun[0] = now()
            return
        ended = now()
        started, explicit, code, line = begun
        begun[0] = 0
        if not started:
            return
        site: dict[str, Any] = {}
        if code is not None:
            site = {"file": files.known.get(code.co_filename), "line": line, "function": function_name(code)}
        about = {"kind": "gc", "generation": info["generation"], "explicit": explicit, **site}
        tally.add_later(("gc", info["generation"], explicit, id(code), line), about, started, ended)

    made = torch_private.as_torch_code(callback)
    gc.callbacks.append(made)
    patches.on_undo(lambda: gc.callbacks.remove(made) if made in gc.callbacks else None)
