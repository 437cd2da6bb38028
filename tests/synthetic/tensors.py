"""Tensors without values, and autograd's graph of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from tests.synthetic.hardware import ELEMENT_BYTES

FLOAT, BFLOAT16, HALF, DOUBLE, LONG = "float", "c10::BFloat16", "c10::Half", "double", "long int"
PRECISIONS = {FLOAT: "fp32", BFLOAT16: "bf16", HALF: "fp16", DOUBLE: "fp64"}


@dataclass(slots=True, eq=False)
class Node:
    """What autograd does for one forward operator on the way back.

    Attributes:
        name: AddmmBackward0 and the like.
        sequence: autograd's number.
        run: the operators of its backward.
        parents: nodes that made its inputs.
        leaves: parameters whose gradient it makes.
    """

    name: str
    sequence: int
    run: Callable[[], None]
    parents: list[Node] = field(default_factory=list)
    leaves: list[Tensor] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor's looks.

    Attributes:
        shape: sizes.
        dtype: as Kineto names it.
        device: cuda or cpu.
        pinned: host memory that the device may read itself.
        parameter: a leaf that is trained.
        node: what made it, for autograd.
        grad: whether it has a gradient; of a parameter.
        channels_last: memory order of images.
        offset: elements of its storage in front of it.
    """

    shape: tuple[int, ...]
    dtype: str = FLOAT
    device: str = "cuda"
    pinned: bool = False
    parameter: bool = False
    node: Node | None = None
    grad: bool = False
    channels_last: bool = False
    offset: int = 0

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * ELEMENT_BYTES[self.dtype]

    @property
    def needs_grad(self) -> bool:
        return self.parameter or self.node is not None

    @property
    def strides(self) -> list[int]:
        made, step = [], 1
        for size in reversed(self.shape):
            made.append(step)
            step *= size
        return made[::-1]

    def like(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Tensor:
        """Another one of the same kind, without a history."""
        return Tensor(shape or self.shape, dtype or self.dtype, self.device, channels_last=self.channels_last)
