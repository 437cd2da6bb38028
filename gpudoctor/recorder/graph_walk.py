"""Walks autograd graphs from their last nodes: which steps made the nodes that are still there, and what they save.

A saved tensor is read as it was stored: nothing is unpacked, so a hook on it (offloading, a checkpoint that would
compute its forward pass again) never runs. What such a hook holds, or a torch that does not show what is stored, is not
counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

MAX_NODES = 50_000  # of one look, some 5 µs each; a model's graph of one step has hundreds to thousands
_RAW = "_raw_saved_"
_LEAF = "torch::autograd::AccumulateGrad"

_names: dict[type, tuple[str, ...]] = {}


class Memory(NamedTuple):
    """A tensor's memory: its address, its size, how much of it the tensor shows, and whether it is a GPU's."""

    address: int
    size_bytes: int
    used_bytes: int
    gpu: bool


@dataclass(slots=True)
class Kept:
    """What hangs on one tensor's graph.

    Attributes:
        nodes: autograd's number of each node, the newest first.
        saved: what they save, each with the number of the node that does.
        since: nodes with lower numbers were not looked at, as there were too many; 0 when all were.
        old: it leads to old nodes, or to nodes that others led to before.
    """

    since: int = 0
    old: bool = False
    nodes: list[int] = field(default_factory=list)
    saved: list[tuple[int, Memory]] = field(default_factory=list)


class GraphWalk:
    """One look at the graphs of several tensors: a node and what it saves count once, for the first that leads to them.

    Args:
        since: autograd's number of the first node that counts.
        old: nodes with lower numbers are old.
    """

    def __init__(self, since: int, old: int) -> None:
        self._since, self._old = since, old
        self._seen: dict[int, Any] = {}  # keeps the nodes: an identity must mean one node
        self._addresses: set[int] = set()

    def from_node(self, root: Any) -> Kept:
        """What hangs on a graph's last node and on none before it; the newest nodes where there are too many."""
        kept = Kept()
        waiting: list[tuple[int, int, Any]] = []
        self._push(root, kept, waiting)
        while waiting:
            if len(self._seen) >= MAX_NODES:
                kept.since = 1 - waiting[0][0]
                break
            negative, _, node = heapq.heappop(waiting)
            kept.nodes.append(-negative)
            for memory in saved(node):
                if memory.address not in self._addresses:
                    self._addresses.add(memory.address)
                    kept.saved.append((-negative, memory))
            for following, _ in node.next_functions:
                if following is not None:
                    self._push(following, kept, waiting)
        return kept

    def _push(self, node: Any, kept: Kept, waiting: list[tuple[int, int, Any]]) -> None:
        number = int(node._sequence_nr())
        # a gradient's accumulation has the highest number there is
        if number < self._since or node.name() == _LEAF:
            return
        kept.old = kept.old or number < self._old or id(node) in self._seen
        if id(node) in self._seen:
            return
        self._seen[id(node)] = node
        heapq.heappush(waiting, (-number, len(self._seen), node))


def saved(node: Any) -> list[Memory]:
    """The memory of a node's saved tensors, of those that no hook has taken."""
    kind = type(node)
    names = _names.get(kind)
    if names is None:
        names = _names[kind] = tuple(name for name in dir(kind) if name.startswith(_RAW))
    found: list[Memory] = []
    for name in names:
        try:
            value = getattr(node, name)
        except (AttributeError, RuntimeError, TypeError, ValueError):  # released already
            continue
        for one in value if isinstance(value, tuple | list) else (value,):
            stored = _stored(one)
            if stored is not None and (memory := memory_of(stored)) is not None:
                found.append(memory)
    return found


def _stored(saved_tensor: Any) -> Any | None:
    try:
        if getattr(saved_tensor, "unpack_hook", saved_tensor) is not None:
            return None
        return saved_tensor.data
    except (AttributeError, RuntimeError):
        return None


def memory_of(tensor: Any) -> Memory | None:
    """A tensor's memory; None for one without, and for subclasses, which run code of their own."""
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return None
    try:
        if tensor.layout is not torch.strided or tensor.is_meta:
            return None
        storage = tensor.untyped_storage()
        address, size = int(storage.data_ptr()), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):  # its storage was freed, or is one without an address
        return None
    return Memory(address, size, tensor.numel() * tensor.element_size(), bool(tensor.is_cuda)) if size else None


def last_nodes(tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each tensor that has a graph, with the graph's last node."""
    found = []
    for tensor in tensors:
        try:
            node = tensor.grad_fn if tensor.requires_grad else None
        except RuntimeError:  # a view that was changed in place outside of autograd
            node = None
        if node is not None:
            found.append((tensor, node))
    return found
