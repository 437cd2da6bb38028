"""`gpudoctor.step()`: the script says where its steps end. Free of imports, so that a script pays nothing for it."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def step() -> None:
    """Says that a training step ends here; under `gpudoctor check` and in `gpudoctor.record()` steps are cut there.

    Needed only for loops whose steps are not found by themselves. Marks take precedence over what is found. Without a
    recording the call does nothing.
    """
    for listener in _listeners:
        listener()


def listen(listener: Callable[[], None]) -> Callable[[], None]:
    """Calls `listener` at each mark from now on; what is returned ends that."""
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return end
