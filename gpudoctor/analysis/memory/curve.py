"""How much memory was in use after each entry of the trace, and what was alive when it was most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.memory.lifetimes import NEVER, Allocations, Integers

SHOWN = 2000
"""Points that a curve is thinned to: more than a screen has columns."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory in use on one device.

    Attributes:
        start_bytes: when the recording began.
        entries: entries of the trace that changed it.
        bytes: in use after each of them.
    """

    start_bytes: int
    entries: Integers
    bytes: Integers

    @property
    def peak_bytes(self) -> int:
        """Most that was in use at once."""
        return max(self.start_bytes, int(self.bytes.max(initial=0)))

    @property
    def peak_entry(self) -> int:
        """Entry after which it was most; -1: already when the recording began."""
        if not len(self.bytes) or int(self.bytes.max()) <= self.start_bytes:
            return NEVER
        return int(self.entries[self.bytes.argmax()])

    def thinned(self) -> tuple[Integers, Integers]:
        """Entries and bytes of at most some `SHOWN` points that keep the highest of each stretch."""
        if len(self.bytes) <= SHOWN:
            return self.entries, self.bytes
        edges = np.linspace(0, len(self.bytes), SHOWN + 1).astype(np.int64)[:-1]
        highest = np.maximum.reduceat(self.bytes, edges)
        return self.entries[edges], highest


def curve(allocations: Allocations, device: int, left_out: NDArray[np.bool_] | None = None) -> Curve:
    """Memory in use over the recording.

    Args:
        allocations: of all devices.
        device: the one that counts.
        left_out: allocations that shall not count, to see what the peak were without them.
    """
    mine = allocations.device == device
    if left_out is not None:
        mine &= ~left_out
    before = mine & (allocations.born == NEVER)
    begun, ended = mine & (allocations.born != NEVER), mine & (allocations.died != NEVER)
    entries = np.concatenate([allocations.born[begun], allocations.died[ended]])
    change = np.concatenate([allocations.bytes[begun], -allocations.bytes[ended]])
    order = np.argsort(entries, kind="stable")
    start = int(allocations.bytes[before].sum())
    return Curve(start, entries[order], start + np.cumsum(change[order]))


def alive_at(allocations: Allocations, device: int, entry: int) -> NDArray[np.bool_]:
    """Which allocations held memory after an entry; -1: when the recording began."""
    there: NDArray[np.bool_] = (allocations.device == device) & (allocations.born <= entry)
    stays: NDArray[np.bool_] = (allocations.died == NEVER) | (allocations.died > entry)
    return np.logical_and(there, stays)
