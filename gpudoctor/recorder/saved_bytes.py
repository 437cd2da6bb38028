"""How many bytes an autograd graph keeps alive for a backward call: the tensors that its nodes have saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

MAX_NODES = 5_000  # some 10 µs each; a graph with more is measured no further
_PREFIX = "_saved_"

_names: dict[type, tuple[str, ...]] = {}


def of(roots: Sequence[Any], since: int, known: Iterable[Any]) -> int | None:
    """Bytes of the distinct storages that the nodes save.

    Args:
        roots: the last nodes of the graph.
        since: autograd's number of the first node that counts.
        known: tensors that live without the graph: parameters, buffers, inputs.

    Returns:
        the bytes; None when a node does not let itself be read.
    """
    try:
        skipped = {_storage(tensor) for tensor in known}
        sizes = {
            _storage(tensor): tensor.untyped_storage().nbytes()
            for node in _nodes(roots, since)
            for tensor in _saved(node)
        }
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None  # released already, changed in place, or a tensor without a storage
    return sum(size for storage, size in sizes.items() if storage not in skipped)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _nodes(roots: Sequence[Any], since: int) -> list[Any]:
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo and len(seen) < MAX_NODES:
        node = todo.pop()
        # a gradient's accumulation has the highest number there is
        if id(node) in seen or node._sequence_nr() < since or node.name() == "torch::autograd::AccumulateGrad":
            continue
        seen[id(node)] = node  # kept: an identity must mean one node
        todo += [following for following, _ in node.next_functions if following is not None]
    return list(seen.values())


def _saved(node: Any) -> list[torch.Tensor]:
    names = _names.get(type(node))
    if names is None:
        names = _names[type(node)] = tuple(name for name in dir(node) if name.startswith(_PREFIX))
    values = [getattr(node, name) for name in names]
    if not names and hasattr(node, "saved_tensors"):  # a Function of the user's, or compiled code
        values = list(node.saved_tensors)
    flat = [one for value in values for one in (value if isinstance(value, tuple | list) else (value,))]
    return [one for one in flat if isinstance(one, torch.Tensor)]
