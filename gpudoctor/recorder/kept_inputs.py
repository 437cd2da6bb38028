"""Keeps a call's inputs until the script is stopped, without holding the user's memory.

Small tensors outside any autograd graph are kept as they are. Of the others only the description is kept, and a tensor
like it is made at the end: numbers at random, integers and booleans zero. No operator runs while inputs are kept, as
that happens in a profiled step.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import weakref
from collections import OrderedDict
from typing import Any

import torch

HELD_BYTES = 8 << 20  # a batch of token ids or small images; nobody's memory is short by this much
MAX_VALUES = 10_000  # nested lists longer than this are data, not arguments
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, slice, range, type(Ellipsis)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, type),
    *(types.FunctionType, types.BuiltinFunctionType),
)


class CannotKeepError(Exception):
    """An input that cannot be kept or made anew; the text says which."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Like:
    """What a tensor is like."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Held:
    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Alive:
    """An object that may be gone at the end."""

    reference: weakref.ref[Any]
    cls: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Tree:
    """A container whose parts are kept each by itself; `like` is its class."""

    like: type
    parts: dict[Any, Any]


class KeptInputs:
    """The arguments of one call.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        remade: how many tensors of `make` are not the real ones.

    Raises:
        CannotKeepError: there is something among them that cannot be kept.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._left_bytes, self._left_values = HELD_BYTES, MAX_VALUES
        self._args = [self._keep(value) for value in args]
        self._kwargs = {name: self._keep(value) for name, value in kwargs.items()}
        self.remade = 0

    def _keep(self, value: Any) -> Any:
        self._left_values -= 1
        if self._left_values < 0:
            raise CannotKeepError(f"its input has more than {MAX_VALUES:,} values")
        cls = type(value)
        if issubclass(cls, torch.Tensor):
            return self._keep_tensor(value)
        if cls in _PLAIN or issubclass(cls, enum.Enum):
            return _Held(value)
        if cls in (list, dict, OrderedDict) or issubclass(cls, tuple):
            pairs = value.items() if issubclass(cls, dict) else enumerate(value)
            return _Tree(cls, {key: self._keep(part) for key, part in pairs})
        if dataclasses.is_dataclass(cls) and not issubclass(cls, dict):
            names = [field.name for field in dataclasses.fields(cls) if hasattr(value, field.name)]
            return _Tree(cls, {name: self._keep(getattr(value, name)) for name in names})
        try:
            return _Alive(weakref.ref(value), cls.__qualname__)
        except TypeError:
            raise CannotKeepError(f"its input has an object of class {cls.__qualname__}") from None

    def _keep_tensor(self, tensor: torch.Tensor) -> Any:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            # only its class can make another one
            return _Alive(weakref.ref(tensor), f"{type(tensor).__qualname__} ({tensor.layout})")
        size = tensor.untyped_storage().nbytes()
        if not tensor.requires_grad and size <= self._left_bytes:
            self._left_bytes -= size
            return _Held(tensor)
        return _Like(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)

    def make(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments again.

        Raises:
            CannotKeepError: an object among them is gone.
        """
        self.remade = 0
        return tuple(self._made(kept) for kept in self._args), {
            name: self._made(kept) for name, kept in self._kwargs.items()
        }

    def _made(self, kept: Any) -> Any:
        if isinstance(kept, _Held):
            return kept.value
        if isinstance(kept, _Like):
            self.remade += 1
            return _tensor(kept)
        if isinstance(kept, _Alive):
            value = kept.reference()
            if value is None:
                raise CannotKeepError(f"its input of class {kept.cls} is gone by the end of the step")
            return value
        parts = {key: self._made(part) for key, part in kept.parts.items()}
        if issubclass(kept.like, dict):
            return kept.like(parts)
        if issubclass(kept.like, list | tuple):
            values = list(parts.values())
            return kept.like(*values) if hasattr(kept.like, "_fields") else kept.like(values)
        made = object.__new__(kept.like)
        for name, part in parts.items():
            object.__setattr__(made, name, part)  # frozen ones too; __init__ may ask for what is not kept
        return made


def _tensor(like: _Like) -> torch.Tensor:
    """A tensor of that description; dimensions of stride 0 are expanded ones."""
    shape = [1 if not step else size for size, step in zip(like.shape, like.stride, strict=True)]
    made = torch.empty_strided(shape, like.stride, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        if like.dtype.is_floating_point or like.dtype.is_complex:
            made.copy_(torch.randn(shape, device=like.device))
        else:
            made.zero_()
    return made.expand(like.shape).requires_grad_(like.requires_grad)
