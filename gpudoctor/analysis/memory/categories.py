"""What an allocation holds, as far as its lifetime and its call stacks tell.

A run that gpudoctor records knows its own parameters, gradients and optimizer state by their addresses; then those
count. A snapshot alone says who asked and when it was given back: everything here is inferred, and tables say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.memory.lifetimes import NEVER, Allocations, Integers, rounded
from gpudoctor.analysis.memory.places import NOWHERE, Place
from gpudoctor.ingest.snapshot.contents import Trace

CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "inputs",
    "temporaries",
    "workspaces",
    "other",
)
"""As the field names them. `other` is what was there before the recording, or that nothing tells of."""

_PARAMETERS, _GRADIENTS, _STATE, _ACTIVATIONS, _INPUTS, _TEMPORARIES, _WORKSPACES, _OTHER = range(len(CATEGORIES))
_WORK = ("optimizer", "backward", "setup", "input", "workspace", "forward", "unknown")
_OPTIMIZER, _BACKWARD, _SETUP, _INPUT, _WORKSPACE, _FORWARD, _UNKNOWN = range(len(_WORK))


def categories(allocations: Allocations, places: Sequence[Place], trace: Trace) -> Integers:
    """The place in `CATEGORIES` of each allocation."""
    work = _codes(places)[allocations.stack]
    died_in = _died_in(allocations, places, trace)
    kept, old = allocations.died == NEVER, allocations.born == NEVER
    made = np.full(len(allocations), _OTHER, np.int64)
    last_backward = int(allocations.born[work == _BACKWARD].max(initial=NEVER))
    saved = ~kept & (died_in == _BACKWARD)  # given back by a backward
    waiting = kept & (allocations.born > last_backward)  # or no backward came any more
    made[old & saved] = _ACTIVATIONS
    made[old & ~kept & (died_in == _OPTIMIZER)] = _STATE
    fresh = ~old
    made[fresh & (work == _OPTIMIZER)] = _TEMPORARIES
    made[fresh & (work == _OPTIMIZER) & (kept | (died_in != _OPTIMIZER))] = _STATE
    # a gradient outlives the backward that made it: it is dropped by zero_grad, or never
    made[fresh & (work == _BACKWARD)] = _TEMPORARIES
    made[fresh & (work == _BACKWARD) & (kept | (died_in != _BACKWARD))] = _GRADIENTS
    forward = fresh & (work == _FORWARD)
    made[forward & ~kept] = _TEMPORARIES
    made[forward & (saved | waiting)] = _ACTIVATIONS
    for sign, category in ((_SETUP, _PARAMETERS), (_INPUT, _INPUTS), (_WORKSPACE, _WORKSPACES)):
        made[work == sign] = category
    _by_size(allocations, made)
    return made


def _codes(places: Sequence[Place]) -> Integers:
    """Codes of work by stack; the last is that of no stack, which is what -1 picks."""
    return np.array([_WORK.index(place.work) for place in (*places, NOWHERE)], np.int64)


def _died_in(allocations: Allocations, places: Sequence[Place], trace: Trace) -> Integers:
    """What was going on when each was given back: the work of the allocation before that entry, on the same device.

    A release carries the stack of its allocation (`context_when_allocated`, c10/cuda/CUDACachingAllocator.cpp), so that
    its own says nothing.
    """
    work = np.where(trace.action == 0, _codes(places)[trace.stack], -1)
    work[work == _UNKNOWN] = -1
    at = np.arange(len(work))
    last = np.maximum.accumulate(np.where(work >= 0, at, -1)) if len(work) else at
    same = (last >= 0) & (trace.device[last] == trace.device)
    going = np.where(same, work[last], _UNKNOWN) if len(work) else work
    died = allocations.died
    return np.where(died == NEVER, _UNKNOWN, going[died]) if len(work) else np.full(len(died), _UNKNOWN, np.int64)


def _by_size(allocations: Allocations, made: Integers) -> None:
    """What was there before the recording and stays: as many of a size as gradients have it are parameters.

    As many again, twice, are the optimizer's moments. Sizes without a gradient stay `other`.
    """
    old: NDArray[np.bool_] = (allocations.born == NEVER) & (allocations.died == NEVER) & (made == _OTHER)
    sizes = np.where(allocations.requested > 0, rounded(allocations.requested), allocations.bytes)
    gradients = _most_at_once(allocations, made == _GRADIENTS)
    taken: Counter[int] = Counter()
    for row in np.flatnonzero(old)[np.argsort(allocations.address[old], kind="stable")].tolist():
        size = int(sizes[row])
        if gradients.get(size):
            made[row] = _PARAMETERS if taken[size] < gradients[size] else _STATE
            taken[size] += 1


def _most_at_once(allocations: Allocations, chosen: NDArray[np.bool_]) -> dict[int, int]:
    """How many of each size were alive at once at most."""
    events: list[tuple[int, int, int]] = []
    end = int(max(allocations.born.max(initial=0), allocations.died.max(initial=0))) + 1
    for row in np.flatnonzero(chosen).tolist():
        size = int(allocations.bytes[row])
        died = int(allocations.died[row])
        events += [(int(allocations.born[row]), 1, size), (end if died == NEVER else died, -1, size)]
    now: Counter[int] = Counter()
    most: dict[int, int] = {}
    for _, change, size in sorted(events):
        now[size] += change
        most[size] = max(most.get(size, 0), now[size])
    return most
