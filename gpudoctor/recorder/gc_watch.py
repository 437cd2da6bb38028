"""Times Python's garbage collections, by generation; those that the script asks for itself are told apart."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.tally import Tally
from gpudoctor.userfiles import UserFiles


def watch(patches: Patches, tally: Tally, files: UserFiles, live: Callable[[], bool], now: Callable[[], int]) -> None:
    """Adds a callback to the collector: 1 µs a collection, of which most are of some hundred objects."""
    begun: list[Any] = [0, False, None]

    def callback(phase: str, info: dict[str, int]) -> None:
        if not live():
            return
        if phase == "start":
            # an automatic collection of all objects has that generation's counter over its threshold
            explicit = info["generation"] == 2 and gc.get_count()[2] <= gc.get_threshold()[2]
            frame = sys._getframe(1)
            while frame is not None and files.known.get(frame.f_code.co_filename) is None:
                frame = frame.f_back  # type: ignore[assignment]
            begun[1:] = [explicit, frame and (id(frame.f_code), frame.f_lineno)]
            begun[0] = now()
            return
        ended = now()
        if not begun[0]:
            return
        key = ("gc", info["generation"], begun[1], begun[2])
        number = tally.number(key) or tally.number(key, about(info["generation"], begun[1], begun[2]))
        if number is not None:
            tally.add(number, begun[0], ended)
        begun[0] = 0

    def about(generation: int, explicit: bool, place: tuple[int, int] | None) -> dict[str, Any]:
        site = files.site(sys._getframe(2)) if place is not None else {}
        return {"kind": "gc", "generation": generation, "explicit": explicit, **site}

    made = torch_private.as_torch_code(callback)
    gc.callbacks.append(made)
    patches.on_undo(lambda: gc.callbacks.remove(made) if made in gc.callbacks else None)
