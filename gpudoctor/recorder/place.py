"""Where a recorded process writes: a folder of its rank, made when the first thing worth writing happens.

Many processes of one run import torch without training: torchrun's own, loader workers, helpers of a shell script.
None of them leaves a trace. A process that trains claims the next free `rankN`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

MAX_RANKS = 100_000


class Place:
    """The process's folder in the recording.

    Args:
        recording: the recording's folder.
    """

    def __init__(self, recording: Path) -> None:
        self._recording = recording
        self._folder: Path | None = None
        self._on_claim: list[Callable[[], None]] = []

    @property
    def claimed(self) -> bool:
        """Whether the process has written anything."""
        return self._folder is not None

    @property
    def folder(self) -> Path:
        """The folder, claimed now if it was not."""
        if self._folder is None:
            self._folder = self._make()
            for function in self._on_claim:
                function()
        return self._folder

    def claim(self) -> None:
        """Makes the folder now: the process trains."""
        if self._folder is None:
            self.folder  # noqa: B018 - reading it makes it

    def on_claim(self, function: Callable[[], None]) -> None:
        """Calls `function` when the folder is made, again in a forked child."""
        self._on_claim.append(function)

    def forget(self) -> None:
        """A forked child starts without a folder."""
        self._folder = None

    def _make(self) -> Path:
        first = rank()
        for number in range(first, MAX_RANKS):
            folder = self._recording / f"rank{number}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
        raise OSError(f"{self._recording}: no free rank folder from rank{first} on")


def rank() -> int:
    """This process's rank: torch.distributed's when it is initialised, else RANK of the launcher, else 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdigit() else 0


def world_size() -> int:
    """How many ranks the run has, as far as this process knows."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdigit() else 1
