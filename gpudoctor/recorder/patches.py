"""Replaced attributes, and how to put the originals back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patches:
    """Remembers what was replaced; `undo()` restores it in reverse order, later replacements of others left alone."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, new: Any) -> None:
        """Sets an attribute of a class or module."""
        old = getattr(owner, name)

        def restore() -> None:
            if getattr(owner, name) is new:
                setattr(owner, name, old)

        setattr(owner, name, new)
        self._undo.append(restore)

    def on_undo(self, function: Callable[[], None]) -> None:
        """Adds something else to call on undo."""
        self._undo.append(function)

    def undo(self) -> None:
        """Puts everything back."""
        while self._undo:
            self._undo.pop()()
