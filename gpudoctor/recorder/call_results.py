"""Whether two calls of a module with the same input returned the same values, bit for bit.

The same input does not make the same result: a module may have a state, a switch or a generator of its own, and its
weights can be exchanged in ways that no version counter tells of. So results are compared. While a step runs they are
only referred to, by tensors that share their memory and their version counter; they are read when the profile has
ended. No operator, no wait and no random number falls into a step. What is not known for certain is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from gpudoctor.recorder import torch_private

HELD_BYTES = 64 << 20  # logits of a classifier have some MiB; nobody's memory is short by this much
MAX_PARTS = 256  # of one result: a cache of keys and values of a hundred layers
MAX_MODULES = 20_000  # whose switches are read in a burst, a microsecond or two each
_MAX_DEPTH = 6
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(slots=True)
class _Kept:
    """A result: its tensors, the versions they had, and everything else in it."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    rest: list[Any] = field(default_factory=list)
    storages: dict[int, int] = field(default_factory=dict)
    state: Any = None


class CallResults:
    """Keeps results of a burst and compares them afterwards."""

    def __init__(self) -> None:
        self.begin_burst()

    def begin_burst(self) -> None:
        """Lets go of everything that an abandoned burst kept."""
        self._kept: dict[int, _Kept] = {}
        self._pairs: list[tuple[int, int]] = []
        self._left_bytes = HELD_BYTES
        self._left_modules = MAX_MODULES

    def state(self, module: Any) -> tuple[Any, ...] | None:
        """What a module computes with, apart from its input, as far as it is cheap to see.

        Args:
            module: about to be called.

        Returns:
            plain attributes of it and its submodules, where parameters and buffers lie, and the parameters' versions
            (running statistics are counted on by each call); None when that is not known.
        """
        try:
            return self._state(module)
        except (AttributeError, RuntimeError, TypeError):  # a module that is not built as torch builds them
            return None

    def _state(self, module: Any) -> tuple[Any, ...] | None:
        found: list[Any] = []
        for inner in module.modules():
            self._left_modules -= 1
            if self._left_modules < 0:
                return None
            for name, value in list(inner.__dict__.items()):
                if type(value) in _PLAIN:
                    found.append((name, value))
                elif type(value) in (list, tuple, set) and len(value) <= 8:
                    found.append((name, tuple(one for one in value if type(one) in _PLAIN)))
            found += [_place(t) for t in inner._parameters.values() if t is not None]
            found += [_place(t)[:2] for t in inner._buffers.values() if t is not None]
        return tuple(found)

    def keep(self, number: int, result: Any, state: tuple[Any, ...] | None, repeats: int | None) -> None:
        """Refers to what a call returned.

        Args:
            number: of the call.
            result: what it returned.
            state: what `state` said before the call.
            repeats: number of the call with the same input that it is compared with; None for none.
        """
        if state is None or (repeats is not None and repeats not in self._kept):
            return
        kept = _Kept(state=state)
        try:
            if not _gather(result, kept, 0) or not kept.tensors:
                return
        except (AttributeError, RuntimeError, TypeError):  # a tensor without memory of its own
            return
        size = sum(kept.storages.values())
        if size > self._left_bytes:
            return
        self._left_bytes -= size
        self._kept[number] = kept
        if repeats is not None:
            self._pairs.append((repeats, number))

    def drop(self, number: int) -> None:
        """The input of a call is gone: nothing can repeat it any more."""
        if any(first == number for first, _ in self._pairs):
            return
        kept = self._kept.pop(number, None)
        if kept is not None:
            self._left_bytes += sum(kept.storages.values())

    def compare(self) -> dict[int, bool | None]:
        """For each call that repeated another one: whether their results are equal. No profiler runs."""
        kept, pairs = self._kept, self._pairs
        self.begin_burst()
        made: dict[int, bool | None] = {}
        for first, second in pairs:
            try:
                made[second] = _equal(kept[first], kept[second])
            except (RuntimeError, TypeError, ValueError):  # memory that was given back, values that cannot be read
                made[second] = None
        return made


def _place(tensor: Any) -> tuple[int, int, int]:
    """Identity, address and version of a parameter or buffer; zeros where it has none."""
    plain = isinstance(tensor, torch.Tensor) and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not plain or tensor.layout is not torch.strided or torch_private.transformed(tensor):
        return id(tensor), 0, 0
    return id(tensor), tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _gather(value: Any, kept: _Kept, depth: int) -> bool:
    """Takes a result apart; False when something in it cannot be compared."""
    if depth > _MAX_DEPTH or len(kept.tensors) + len(kept.rest) > MAX_PARTS:
        return False
    if isinstance(value, torch.Tensor):
        return _keep_tensor(value, kept)
    if type(value) in _PLAIN:
        kept.rest.append(value)
        return True
    if isinstance(value, dict):
        parts = [part for item in value.items() for part in item]
    elif isinstance(value, tuple | list):
        parts = list(value)
    elif hasattr(type(value), "__dataclass_fields__") and hasattr(value, "__dict__"):
        parts = [part for item in vars(value).items() for part in item]
    else:
        return False
    kept.rest.append((type(value), len(parts)))
    return all(_gather(part, kept, depth + 1) for part in parts)


def _keep_tensor(tensor: torch.Tensor, kept: _Kept) -> bool:
    alias = torch_private.unseen_alias(tensor)
    if alias is None:
        return False
    storage = alias.untyped_storage()
    kept.storages[storage.data_ptr()] = storage.nbytes()
    kept.tensors.append(alias)
    kept.versions.append(alias._version)
    kept.rest.append(("tensor", tensor.shape, tensor.dtype, tensor.device))
    return True


def _equal(one: _Kept, other: _Kept) -> bool | None:
    """Whether two results are the same values; None when that is not known any more."""
    for kept in (one, other):
        if any(t._version != version for t, version in zip(kept.tensors, kept.versions, strict=True)):
            return None
    if not one.storages.keys().isdisjoint(other.storages.keys()):
        return None  # written into the same memory, or handed out twice: nothing tells of the first values
    if one.rest != other.rest or one.state != other.state:
        return False
    if any(t.is_cuda for t in one.tensors) and torch.cuda.is_current_stream_capturing():
        return None
    return all(torch.equal(a, b) for a, b in zip(one.tensors, other.tensors, strict=True))
