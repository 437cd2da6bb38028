"""Adds up short work of one kind between two events of the loop: a hundred prints a step are one row of the watch.

A row is `["Q", [first_start, last_end, number, calls, ns]]`; what a number stands for is said once:
`["N", {number, …}]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.watch import Watch


class Tally:
    """Sums by place; `flush` at every event that may end a step, as the steps are cut afterwards."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._numbers: dict[Any, int] = {}
        self._open: dict[int, list[int]] = {}
        self._later: dict[Any, tuple[dict[str, Any], list[int]]] = {}
        self._rows_later: list[Callable[[], tuple[Any, ...]]] = []

    def number(self, key: Any, about: dict[str, Any] | None = None) -> int | None:
        """The number of something that was said before; with `about` it is said now."""
        number = self._numbers.get(key)
        if number is None and about is not None:
            number = self._numbers[key] = len(self._numbers)
            self._watch.add("N", {"number": number, **about})
        return number

    @torch_private.as_torch_code  # called where Dynamo looks at every frame
    def add(self, number: int, start: int, end: int) -> None:
        """Something took from `start` to `end`."""
        row = self._open.get(number)
        if row is None:
            self._open[number] = [start, end, 1, end - start]
        else:
            row[1] = end
            row[2] += 1
            row[3] += end - start

    @torch_private.as_torch_code
    def add_later(self, key: Any, about: dict[str, Any], start: int, end: int) -> None:
        """As `number` and `add`, in the middle of whatever the recorder does: nothing is written before `flush`."""
        found = self._later.get(key)
        if found is None:
            self._later[key] = about, [start, end, 1, end - start]
        else:
            row = found[1]
            row[1] = end
            row[2] += 1
            row[3] += end - start

    @torch_private.as_torch_code
    def row_later(self, made: Callable[[], tuple[Any, ...]]) -> None:
        """Has a row of the watch made and written at the next `flush`."""
        self._rows_later.append(made)

    def flush(self) -> None:
        """Writes the sums and begins new ones."""
        if self._rows_later:
            waiting, self._rows_later = self._rows_later, []
            for made in waiting:
                self._watch.add(*made())
        if self._later:
            later, self._later = self._later, {}
            for key, (about, row) in later.items():
                number = self.number(key, about)
                if number is not None:
                    self._open[number] = row
        if self._open:
            rows, self._open = self._open, {}
            for number, (start, end, calls, ns) in rows.items():
                self._watch.add("Q", (start, end, number, calls, ns))

    def forget(self) -> None:
        """A forked child begins anew."""
        self._numbers, self._open, self._later, self._rows_later = {}, {}, {}, []
