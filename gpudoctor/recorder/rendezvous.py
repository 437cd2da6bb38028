"""Agrees among ranks on the step at which the run is stopped, through files: no collective, nothing that can hang.

Each rank that has seen enough says so with an empty file. When all have, the first to notice writes the step at which
to stop: a few steps ahead, so that no rank has passed it. Ranks that reduce gradients together are never more than one
step apart; ranks that run freely and are past it stop at their next boundary.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

AHEAD = 3  # steps between the agreement and the stop: one rank may be a step ahead, and one more for luck of timing
_FILE = "stop"


class Rendezvous:
    """One rank's view of the agreement.

    Args:
        folder: the recording's folder, which all ranks share.
        rank: this rank.
        world: number of ranks.
    """

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self._folder, self._rank, self._world = folder, rank, world
        self._ready = False
        self._agreed: int | None = None

    def stop_now(self, step: int, enough: bool) -> bool:
        """Whether this rank stops after `step`; `enough` says that it has seen what it wants."""
        if self._world == 1:
            return enough
        if enough and not self._ready:
            self._ready = True
            (self._folder / f"ready.{self._rank}").touch()
        if self._ready and self._agreed is None:
            self._agreed = self._read() or self._propose(step)
        return self._agreed is not None and step >= self._agreed

    def _read(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / _FILE).read_text(encoding="ascii"))
        return None

    def _propose(self, step: int) -> int | None:
        if len(list(self._folder.glob("ready.*"))) < self._world:
            return None
        draft = self._folder / f"{_FILE}.{self._rank}"
        draft.write_text(str(step + AHEAD), encoding="ascii")
        with contextlib.suppress(FileExistsError):
            (self._folder / _FILE).hardlink_to(draft)  # atomic: the first proposal wins, and is whole when it is seen
        return self._read()
