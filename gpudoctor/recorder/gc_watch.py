"""Times Python's garbage collections: each belongs to the script that asked for it, or to the collector itself.

`gc.collect` is a builtin that Dynamo breaks graphs on, so it is not replaced: the collector's callbacks tell who runs
while it works. A collection in code that calls something named `collect` becomes a row of calls by hand; whether the
very line does is seen later in its source. All others are added up by generation and place. None is in both.

A collection begins wherever something is allocated, in the recorder's own code too, in the middle of a loop over one of
its tables or of a write. So the callback changes its own sums only: it meets no file first, and writes nothing.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.tally import Tally
from gpudoctor.userfiles import UserFiles, function_name

COLLECT = "gc.collect"
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_Place = tuple[CodeType | None, int]


def watch(patches: Patches, tally: Tally, files: UserFiles, live: Callable[[], bool], now: Callable[[], int]) -> None:
    """Adds a callback to the collector: 1 µs a collection, of which most are of some hundred objects."""
    begun: list[Any] = [0, False, (None, 0), (None, 0)]  # when, due by itself, who ran, and the user's code around it

    def callback(phase: str, info: dict[str, int]) -> None:
        if not live():
            return
        generation = info["generation"]
        if phase == "start":
            # one that begins by itself has a counter over its threshold: that of all objects, or of new ones
            counter = 2 if generation == 2 else 0
            due = gc.isenabled() and gc.get_count()[counter] > gc.get_threshold()[counter]
            frame = sys._getframe().f_back
            runs: _Place = (frame.f_code, frame.f_lineno) if frame is not None else (None, 0)
            while frame is not None and files.known.get(frame.f_code.co_filename) is None:
                frame = frame.f_back
            begun[1:] = [due, runs, (frame.f_code, frame.f_lineno) if frame is not None else (None, 0)]
            begun[0] = now()
            return
        ended = now()
        started, due, runs, (code, line) = begun
        begun[0] = 0
        if not started:
            return
        if _may_ask(runs[0]) and (generation == 2 or not due):
            thread = threading.get_ident()
            tally.row_later(lambda: _by_hand(files, started, ended, runs, (code, line), thread, generation))
            return
        site: dict[str, Any] = {}
        if code is not None:
            site = {"file": files.known.get(code.co_filename), "line": line, "function": function_name(code)}
        about = {"kind": "gc", "generation": generation, "explicit": not due, **site}
        tally.add_later(("gc", generation, due, id(code), line), about, started, ended)

    for function in (_may_ask, callback):  # called where Dynamo looks at every frame
        torch_private.as_torch_code(function)
    made = callback
    gc.callbacks.append(made)
    patches.on_undo(lambda: gc.callbacks.remove(made) if made in gc.callbacks else None)


def _may_ask(code: CodeType | None) -> bool:
    """Whether code calls something named `collect`, and is not torch's own (it collects before it captures a graph)."""
    return code is not None and "collect" in code.co_names and not code.co_filename.startswith(_TORCH)


def _by_hand(
    files: UserFiles, started: int, ended: int, runs: _Place, around: _Place, thread: int, generation: int
) -> tuple[Any, ...]:
    """The row of the watch: it is on the line that ran, if that is the user's, else on the user's line around it."""
    by_user = runs[0] is not None and files.name(runs[0].co_filename) is not None
    code, line = runs if by_user else around
    place = (None, None, None) if code is None else (files.name(code.co_filename), line, function_name(code))
    return ("X", started, ended, COLLECT, *place, by_user, thread, generation)
