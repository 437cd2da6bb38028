"""Finds step boundaries while the script runs, from optimizer, backward and batch events.

What is decided here only places the profiler bursts; the steps of the Profile are cut afterwards from the whole log
(`ingest.steps`), so a guess that turns out wrong costs a burst, not a wrong number.
"""

from __future__ import annotations

from enum import Enum

_BACKWARDS_WITHOUT_OPTIMIZER = 4  # so many backward calls with no optimizer: the loop updates by hand, or compiled
_BATCHES_WITHOUT_BACKWARD = 4  # so many batches with neither: inference


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
        self._known: dict[int, int] = {}
        self._period: int | None = 1
        self._since = 0
        self._backwards = 0
        self._batches = 0

    def optimizer(self, identity: int) -> bool:
        """An optimizer stepped (or was skipped by a scaler). True when that ends a training step."""
        if self.signal is not Signal.OPTIMIZER:
            self._revised |= self.signal is not None
            self.signal = Signal.OPTIMIZER
        if identity not in self._known:
            self._known[identity] = len(self._known)
            if len(self._known) > 1:
                self._revised = True
                self._period = None
        self._order.append(self._known[identity])
        if self._period is None:
            self._period = period(self._order, len(self._known))
            self._since = 0
            return self._period is not None
        self._since += 1
        if self._since < self._period:
            return False
        self._since = 0
        return True

    def backward(self) -> bool:
        """A backward call ended. True when that ends a step (no optimizer is in sight)."""
        self._backwards += 1
        if self.signal is Signal.OPTIMIZER or self._backwards < _BACKWARDS_WITHOUT_OPTIMIZER:
            return False
        if self.signal is not Signal.BACKWARD:
            self._revised |= self.signal is not None
            self.signal = Signal.BACKWARD
        return True

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


def period(order: list[int], known: int) -> int | None:
    """Smallest P such that the last P optimizers repeat the P before them and every known one occurs.

    Args:
        order: optimizer ids in the order they stepped.
        known: how many distinct optimizers there are.

    Returns:
        The period in optimizer steps (1 for one optimizer, 3 for a GAN that trains D twice), or None.
    """
    for size in range(1, len(order) // 2 + 1):
        tail = order[-size:]
        if len(set(tail)) == known and tail == order[-2 * size : -size]:
            return size
    return None
