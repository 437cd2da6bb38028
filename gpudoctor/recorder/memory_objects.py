"""Whose memory is whose: the addresses of parameters, gradients and optimizer state when a snapshot is taken.

The allocator knows blocks, not tensors. What the run's own optimizers hold is written beside the snapshot, so that
these categories are known and not inferred.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

FILE = "memory_objects.json"

_optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def note(optimizer: Optimizer) -> None:
    """Remembers an optimizer, without keeping it alive."""
    _optimizers.add(optimizer)


def save(folder: Path) -> None:
    """Writes `[device, address, category]` of what every optimizer holds on a GPU."""
    rows = sorted({row for optimizer in list(_optimizers) for row in _rows(optimizer)})
    (folder / FILE).write_text(json.dumps(rows), encoding="utf-8")


def _rows(optimizer: Optimizer) -> Iterator[tuple[int, int, str]]:
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    yield from _places(parameters, "parameters")
    yield from _places((one.grad for one in parameters if one.is_leaf), "gradients")
    yield from _places(_tensors(optimizer.state.values()), "optimizer state")


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors of an optimizer's state; some keep them in lists or in mappings of their own."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _places(tensors: Iterable[Any], category: str) -> Iterator[tuple[int, int, str]]:
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_cuda:
            continue
        try:
            address = tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):  # a subclass without memory of its own
            continue
        if address:
            yield tensor.device.index or 0, address, category
