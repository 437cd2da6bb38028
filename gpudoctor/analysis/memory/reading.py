"""A snapshot with what follows from it: places, lifetimes, categories, segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.memory.categories import CATEGORIES, categories
from gpudoctor.analysis.memory.lifetimes import NEVER, Allocations, Integers, allocations
from gpudoctor.analysis.memory.places import Place, places
from gpudoctor.analysis.memory.state import Segments, segments
from gpudoctor.columns import MISSING
from gpudoctor.ingest.snapshot.contents import ACTIONS, Contents

LAST_OF_BLOCKS = ACTIONS.index("free")
"""The last of the actions that are about blocks; the others are about segments and the snapshot itself."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot and what follows from it.

    Attributes:
        contents: what the file says.
        places: of each stack.
        allocations, category: of each allocation what it is and holds.
        known: category that the run itself knew, by (device, address); it goes before what is inferred.
        segments: at the end.
    """

    contents: Contents
    places: Sequence[Place]
    allocations: Allocations
    category: Integers
    inferred: NDArray[np.bool_]
    segments: Segments


def reading(
    contents: Contents,
    known: Mapping[tuple[int, int], str] | None = None,
    name: Callable[[str], str | None] | None = None,
) -> Reading:
    """Works out lifetimes and categories.

    Args:
        contents: the snapshot.
        known: category by (device, address) of what was alive at its end, from the run's own objects.
        name: gives the shown name of a user's file, None for a library's.
    """
    found, made = places(contents.stacks, name), allocations(contents)
    category = categories(made, found, contents.trace)
    inferred = np.ones(len(made), bool)
    if known:
        alive = np.flatnonzero(made.died == NEVER).tolist()
        for row in alive:
            said = known.get((int(made.device[row]), int(made.address[row])))
            if said in CATEGORIES:
                category[row], inferred[row] = CATEGORIES.index(said), False
    return Reading(contents, found, made, category, inferred, segments(contents))


def has_history(read: Reading) -> bool:
    """Whether the allocator's history was recorded; without, a snapshot has an entry of itself at most."""
    return bool((read.contents.trace.action <= LAST_OF_BLOCKS).any())


def devices(read: Reading) -> list[int]:
    """GPU indices that have a segment or an allocation."""
    return sorted({*read.segments.device.tolist(), *read.allocations.device.tolist()})


def times_ns(read: Reading, entries: Integers) -> Integers:
    """Times of entries from the history's first, null for none."""
    time = read.contents.trace.time_us
    if not len(time) or not time.any():
        return np.full(len(entries), MISSING, np.int64)
    return np.where(entries == NEVER, MISSING, (time[entries] - time[time > 0].min()) * 1000)
