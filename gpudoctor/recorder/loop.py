"""Finds step boundaries while the script runs, from optimizer, backward and batch events.

What is decided here only places the profiler bursts; the steps of the Profile are cut afterwards from the whole log
(`ingest.steps`), so a guess that turns out wrong costs a burst, not a wrong number.
"""

from __future__ import annotations

from enum import Enum

_BACKWARDS_WITHOUT_OPTIMIZER = 4  # so many backward calls with no optimizer: the loop updates by hand, or compiled
_BATCHES_WITHOUT_BACKWARD = 4  # so many batches with neither: inference
_REMEMBERED = 64  # optimizer steps that the period is looked for in: optimizers of an earlier phase are forgotten


class Signal(Enum):
    """What ends a step."""

    OPTIMIZER = "optimizer"
    BACKWARD = "backward"
    BATCH = "dataloader"


class Loop:
    """Turns events into step boundaries.

    Attributes:
        signal: what ends a step, as believed now; None before the first boundary.
        revised: the belief changed since the last `take_revision()`: steps seen so far may be cut wrongly.
    """

    def __init__(self) -> None:
        self.signal: Signal | None = None
        self._revised = False
        self._order: list[int] = []
        self._known: set[int] = set()
        self._period: int | None = 1
        self._since = 0
        self._backwards = 0
        self._accumulated = 0
        self._per_update = 1
        self._batches = 0

    def optimizer(self, identity: int) -> bool:
        """An optimizer stepped (or was skipped by a scaler). True when that ends a training step."""
        if self.signal is not Signal.OPTIMIZER:
            self._revised |= self.signal is not None
            self.signal = Signal.OPTIMIZER
        self._order = [*self._order[1 - _REMEMBERED :], identity]
        if identity not in self._known:
            self._known.add(identity)
            if len(self._known) > 1:
                self._revised = True
                self._period = None
        if self._period is None:
            self._period = period(self._order)
            self._since = 0
            return self._period is not None
        self._since += 1
        if self._since < self._period:
            return False
        self._since = 0
        return True

    def backward(self, continues: bool = False) -> bool:
        """A backward call ended. True when that ends a step (no optimizer is in sight).

        Args:
            continues: nothing was updated since the call before: both accumulate.
        """
        self._backwards += 1
        if self.signal is Signal.OPTIMIZER:
            return False
        if continues:
            self._accumulated += 1
        else:
            if self._backwards > 1 and self._accumulated != self._per_update:
                self._per_update = self._accumulated
                self._revised = True
            self._accumulated = 1
        if self._backwards < _BACKWARDS_WITHOUT_OPTIMIZER or self._backwards == self._accumulated:
            return False
        if self.signal is not Signal.BACKWARD:
            self._revised |= self.signal is not None
            self.signal = Signal.BACKWARD
        return self._accumulated == self._per_update

    def batch(self) -> bool:
        """A batch is asked for. True when that ends a step (neither optimizer nor backward is in sight)."""
        self._batches += 1
        if self._backwards or self._known or self._batches < _BATCHES_WITHOUT_BACKWARD:
            return False
        self.signal = Signal.BATCH
        return True

    def take_revision(self) -> bool:
        """Whether the belief changed since the last call."""
        revised, self._revised = self._revised, False
        return revised


def period(order: list[int]) -> int | None:
    """Smallest P such that the last P optimizers repeat the P before them and every one in the order occurs.

    Args:
        order: optimizer ids in the order they stepped.

    Returns:
        The period in optimizer steps (1 for one optimizer, 3 for a GAN that trains D twice), or None.
    """
    known = len(set(order))
    for size in range(1, len(order) // 2 + 1):
        tail = order[-size:]
        if len(set(tail)) == known and tail == order[-2 * size : -size]:
            return size
    return None
