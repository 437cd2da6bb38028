"""What an operator was called with, as a Kineto trace records it: shapes, dtypes and the values of scalars.

`Input Dims`, `Input type` and `Concrete Inputs` are parallel lists with an entry for each argument of the operator's
schema (torch/csrc/autograd/profiler_kineto.cpp and torch/csrc/profiler/util.cpp):

| argument | Input Dims | Input type | Concrete Inputs |
|---|---|---|---|
| tensor | `[4, 8]` | C++ type, `float`, `c10::BFloat16`, … | empty |
| list of tensors | `[[4, 8], [8]]` | `TensorList` | empty |
| number, truth value | `[]` | `Scalar` (older: empty) | `1`, `True` |
| list of numbers | `[]` | `ScalarList` (older: empty) | `[1, 1]` |
| None, string | `[]` | empty | empty |

Traces of torch before 2.1 have no `Concrete Inputs`. What is not recorded is None here, never a default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

Shape = tuple[int, ...]

ITEM_BYTES = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1,
    "c10::Float4_e2m1fn_x2": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "long": 8,
    "__int64": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}
"""Bytes of one element by the C++ type that Kineto writes. Float4_e2m1fn_x2 packs two values in its one byte."""

MATRIX_DTYPES = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "c10::Float4_e2m1fn_x2": "fp4",
    "signed char": "int8",
    "unsigned char": "int8",
}
"""The dtype by the names that `hardware.Gpu` has peaks for."""

FLOATING = ("c10::Half", "c10::BFloat16", "float", "double")

_SCALAR_TYPES = {
    0: "unsigned char",
    1: "signed char",
    2: "short int",
    3: "int",
    4: "long int",
    5: "c10::Half",
    6: "float",
    7: "double",
    11: "bool",
    15: "c10::BFloat16",
    23: "c10::Float8_e5m2",
    24: "c10::Float8_e4m3fn",
}
"""A dtype argument is recorded as its number in c10/core/ScalarType.h."""

_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
"""ATen's concatenation kernels know the size of an element only."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: its shape and its C++ element type (empty when not recorded)."""

    shape: Shape
    dtype: str

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int | None:
        """Bytes of one element; None when the type is not known."""
        return item_bytes(self.dtype)

    @property
    def bytes(self) -> int | None:
        """Bytes of all elements, each counted once."""
        return times(self.numel, self.item_bytes)


@dataclass(frozen=True, slots=True)
class Operands:
    """The arguments of one operator call.

    Attributes:
        dims: `Input Dims` (a list of lists for a list of tensors).
        dtypes: `Input type`; None when not recorded.
        concrete: `Concrete Inputs`; None when not recorded.
        list_dtype: element type of tensor lists, which Kineto does not record; None when unknown.
    """

    dims: tuple[Any, ...]
    dtypes: tuple[str, ...] | None
    concrete: tuple[str, ...] | None
    list_dtype: str | None

    def __len__(self) -> int:
        return len(self.dims)

    def dtype(self, index: int) -> str:
        """Recorded type of an argument; empty when there is none."""
        return self.dtypes[index] if self.dtypes is not None and index < len(self.dtypes) else ""

    def tensor(self, index: int) -> Tensor | None:
        """The tensor argument; None when it is none, absent, or a 0-dimensional one of a trace without dtypes."""
        if index >= len(self.dims):
            return None
        dims, dtype = self.dims[index], self.dtype(index)
        if any(isinstance(length, list) for length in dims):
            return None
        if dtype in ITEM_BYTES or dims:
            return Tensor(tuple(dims), dtype)
        return None

    def tensors(self, *indices: int) -> list[Tensor]:
        """Those of the arguments that are tensors."""
        return [tensor for index in indices if (tensor := self.tensor(index)) is not None]

    def shapes(self, index: int) -> list[Shape]:
        """Shapes of a list of tensors; empty when the argument is none or an empty one."""
        dims = self.dims[index] if index < len(self.dims) else []
        return [tuple(shape) for shape in dims if isinstance(shape, list)]

    def given(self, index: int) -> bool | None:
        """Whether an argument other than a tensor was given; None when its type was not recorded."""
        if index >= len(self.dims):
            return False
        return None if self.dtypes is None else self.dtype(index) != ""

    def _value(self, index: int) -> str | None:
        if self.concrete is None or index >= len(self.concrete):
            return None
        return self.concrete[index] or None

    def flag(self, index: int) -> bool | None:
        """A truth value."""
        return {"True": True, "False": False}.get(self._value(index) or "")

    def number(self, index: int) -> int | None:
        """A whole number."""
        try:
            return int(self._value(index) or "")
        except ValueError:
            return None

    def numbers(self, index: int) -> list[int] | None:
        """A list of whole numbers, or one alone."""
        value = self._value(index)
        if value is None or not re.fullmatch(r"\[?[-\d, ]*\]?", value):
            return None
        return [int(part) for part in re.findall(r"-?\d+", value)]

    def flags(self, index: int) -> list[bool] | None:
        """A list of truth values."""
        value = self._value(index)
        if value is None or not re.fullmatch(r"\[(?:(?:True|False)(?:, ?)?)*\]", value):
            return None
        return [part == "True" for part in re.findall(r"True|False", value)]

    def dtype_argument(self, index: int, default: str) -> str:
        """The element type that a dtype argument asks for: `default` for None, empty when it was not recorded."""
        given = self.given(index)
        if given is False:
            return default
        number = self.number(index)
        return _SCALAR_TYPES.get(number, "") if given and number is not None else ""


def parse(
    shapes: str | Sequence[Any] | None,
    dtypes: str | Sequence[str] | None,
    concrete: Sequence[str] | None,
    list_dtype: str | None,
) -> Operands | None:
    """Reads the columns `shapes` and `dtypes` of `ops`, or Kineto's own lists.

    Args:
        shapes: a list of dims or its JSON text.
        dtypes: a list of types or its comma-separated text.
        concrete: Kineto's `Concrete Inputs`.
        list_dtype: element type of tensor lists.

    Returns:
        The operands; None without shapes, or when they are no list.
    """
    try:
        dims = json.loads(shapes) if isinstance(shapes, str) else shapes
    except ValueError:
        return None
    if not isinstance(dims, list | tuple) or not all(_is_shape(item) or _is_shapes(item) for item in dims):
        return None
    types = dtypes.split(",") if isinstance(dtypes, str) else dtypes
    return Operands(tuple(_lists(item) for item in dims), _recorded(types), _recorded(concrete), list_dtype)


def _recorded(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """The values; None for a missing cell of a table (None, NaN or NA)."""
    return tuple(str(value) for value in values) if isinstance(values, list | tuple) else None


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list | tuple) and all(isinstance(length, int) and length >= 0 for length in dims)


def _is_shapes(dims: Any) -> bool:
    return isinstance(dims, list | tuple) and all(_is_shape(item) for item in dims)


def _lists(dims: Any) -> list[Any]:
    return [list(item) if isinstance(item, tuple) else item for item in dims]


def item_bytes(dtype: str | None) -> int | None:
    """Bytes of one element of a C++ type; None when it is not known."""
    opaque = _OPAQUE.search(dtype or "")
    return int(opaque.group(1)) if opaque else ITEM_BYTES.get(dtype or "")


def times(*factors: int | None) -> int | None:
    """The product; None when a factor is."""
    return (
        None if any(factor is None for factor in factors) else prod(factor for factor in factors if factor is not None)
    )


def total(*parts: int | None) -> int | None:
    """The sum; None when a part is."""
    return None if any(part is None for part in parts) else sum(part for part in parts if part is not None)


def sizes(tensors: Sequence[Tensor]) -> int | None:
    """Bytes of some tensors together; None when one's type is not known."""
    return total(*(tensor.bytes for tensor in tensors))


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Shape that operands of these shapes broadcast to (NumPy's rule); None when they do not."""
    rank = max((len(shape) for shape in shapes), default=0)
    made = []
    for axis in range(-rank, 0):
        lengths = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(lengths) > 1:
            return None
        made.append(lengths.pop() if lengths else 1)
    return tuple(made)


def promote(tensors: Sequence[Tensor]) -> str:
    """Element type of the result of a pointwise operator on these tensors; empty when this does not decide it.

    PyTorch's rule (torch.result_type): tensors with dimensions decide before 0-dimensional ones of the same category.
    Only the cases that the types alone decide: equal types, and floating ones of unequal width.
    """
    with_dims = [tensor.dtype for tensor in tensors if tensor.shape] or [tensor.dtype for tensor in tensors]
    if any(dtype not in ITEM_BYTES or dtype.startswith(("c10::complex", "c10::Float")) for dtype in with_dims):
        return ""
    floating = sorted({dtype for dtype in with_dims if dtype in FLOATING}, key=FLOATING.index)
    if floating:
        return "float" if floating == ["c10::Half", "c10::BFloat16"] else floating[-1]
    same = len(set(with_dims)) == 1
    others = {tensor.dtype for tensor in tensors if not tensor.shape} - set(with_dims)
    return with_dims[0] if same and not others else ""
