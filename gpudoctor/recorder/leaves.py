"""Notices updates of parameters that no optimizer hook sees: by hand, by a class of the user's own, compiled.

Between two backward calls that only accumulate gradients nothing touches a parameter or its gradient. So a few
parameters are remembered with their version counters, and a call that finds them unchanged continues the one before.
Reading versions costs a microsecond and never waits for a device.
"""

from __future__ import annotations

import weakref
from typing import Any

from gpudoctor.recorder import torch_private

MAX_LEAVES = 8  # heads of one model: a backward call of one of them says that the others were not updated either
MAX_NODES = 64  # the parameters of a model's last layer are a few nodes from its loss


class Leaves:
    """Remembers parameters that backward calls led to."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def continues(self) -> bool:
        """Whether nothing was updated since the last call: False as well when nothing is known."""
        alive = [(leaf, state) for reference, state in self._known.values() if (leaf := reference()) is not None]
        return bool(alive) and all(_state(leaf) == state for leaf, state in alive)

    def remember(self, outputs: Any) -> None:
        """Notes the state after a backward call from `outputs`."""
        leaf = _first_leaf(outputs)
        if leaf is not None and id(leaf) not in self._known:
            while len(self._known) >= MAX_LEAVES:
                self._known.pop(next(iter(self._known)))
            self._known[id(leaf)] = weakref.ref(leaf), None
        self._known = {
            key: (reference, _state(leaf))
            for key, (reference, _) in self._known.items()
            if (leaf := reference()) is not None
        }


def _state(leaf: Any) -> Any:
    grad = leaf.grad
    if grad is None:
        return leaf._version, None
    try:
        return leaf._version, grad.data_ptr(), grad._version
    except RuntimeError:  # a sparse gradient, say, has no storage of its own
        return leaf._version, id(grad), grad._version


def _first_leaf(outputs: Any) -> Any:
    """The first parameter that the graph of some outputs leads to."""
    todo = [tensor.grad_fn for tensor in outputs if getattr(tensor, "grad_fn", None) is not None]
    for _ in range(MAX_NODES):
        if not todo:
            return None
        node = todo.pop()
        leaf = torch_private.accumulated_leaf(node)
        if leaf is not None:
            return leaf
        todo += [following for following, _ in node.next_functions if following is not None]
    return None
