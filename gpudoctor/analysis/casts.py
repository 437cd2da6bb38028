"""Conversions between floating point dtypes in a profiled step: who wants each, and what it takes.

Autocast converts weights once a forward pass and activations where operators meet; that is how it works. What can be
saved are conversions that the code asks for between layers, and weights that are converted again because the autocast
context (which remembers them) was left in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames, op_costs
from gpudoctor.analysis.frames import Rows
from gpudoctor.analysis.op_cells import OpCells, is_operator
from gpudoctor.profile import frame

BITS = {
    "double": 64,
    "float": 32,
    "c10::Half": 16,
    "c10::BFloat16": 16,
    "c10::Float8_e4m3fn": 8,
    "c10::Float8_e5m2": 8,
}
"""Floating point dtypes as the profiler writes them; integers become floats because somebody needs that."""

NAMES = {"double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_CONVERSIONS = frozenset({"aten::to", "aten::_to_copy", "aten::type_as", "aten::copy_"})
_MATRIX = ("gemm", "convolution", "attention")

LINE, LOSS, OPERATOR, AGAIN, LIBRARY, BACKWARD = "line", "loss", "operator", "again", "library", "backward"


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `casts`.

    Args:
        ops: the table `ops`; conversions in it that have dtypes count.
        kernels: the table `kernels`; None when no device was watched, then a conversion takes its host time.
    """
    at = _conversions(ops)
    taken = _taken_ns(ops, kernels, at)
    cells = OpCells(ops)
    order = _Order(ops)
    made: list[dict[str, Any]] = []
    kinds: dict[int, str | None] = {}
    converted: set[tuple[Any, ...]] = set()
    for row, ns in sorted(zip(at.tolist(), taken, strict=True), key=lambda pair: (order.start[pair[0]], pair[0])):
        target, source = cells.text("dtypes", row).split(",")[:2]
        outer = _outermost(cells, row)
        kind = _kind(cells, order, outer, kinds, BITS[target] > BITS[source], converted)
        kinds[outer] = kind
        for inner in _chain(cells, row, outer):  # a backward operator is linked to any of them
            kinds[inner] = kind
        made.append(
            {
                **cells.place(row),
                "source": NAMES.get(source, source.removeprefix("c10::")),
                "target": NAMES.get(target, target.removeprefix("c10::")),
                "widens": BITS[target] > BITS[source],
                "kind": kind,
                "dur_ns": int(ns),
            }
        )
    return frame("casts", made)


def _conversions(ops: pd.DataFrame) -> Rows:
    """Copies between two floating point dtypes, without those of a single number (a `step` counter, a scalar)."""
    dtypes, shapes = frames.texts(ops, "dtypes"), frames.texts(ops, "shapes")
    differ = np.array([*(_differ(text) for text in dtypes.values), False], np.bool_)
    sized = np.array([*(not text.startswith("[[]") for text in shapes.values), True], np.bool_)
    return np.flatnonzero(frames.is_one_of(ops, "name", "aten::copy_") & differ[dtypes.codes] & sized[shapes.codes])


def _differ(dtypes: str) -> bool:
    target, source, *_ = [*dtypes.split(","), "", ""]
    return target != source and target in BITS and source in BITS


def _taken_ns(ops: pd.DataFrame, kernels: pd.DataFrame | None, at: Rows) -> Sequence[int]:
    if kernels is None:
        taken = frames.integers(ops, "self_ns")[at]
    else:
        taken = op_costs.launched(ops, kernels[frames.is_one_of(kernels, "kind", "kernel")])[0][at]
    made: list[int] = np.maximum(taken, 0).tolist()
    return made


class _Order:
    """What comes before what: matrix work of forward passes, and backward passes."""

    def __init__(self, ops: pd.DataFrame) -> None:
        self.start: list[int] = frames.integers(ops, "start_ns").tolist()
        starts = np.array(self.start, np.int64)
        forward = frames.is_one_of(ops, "phase", "forward")
        self._matrix = np.sort(starts[forward & frames.is_one_of(ops, "op_class", *_MATRIX)]).tolist()
        self._backward = np.sort(starts[frames.is_one_of(ops, "phase", "backward")]).tolist()

    def before_loss(self, row: int) -> bool:
        """Whether no matrix work of this forward pass follows: the result goes to the loss."""
        later = bisect_right(self._matrix, self.start[row])
        ends = bisect_right(self._backward, self.start[row])
        if later == len(self._matrix):
            return True
        return ends < len(self._backward) and self._backward[ends] < self._matrix[later]

    def passes(self, row: int) -> int:
        """A number that is the same for operators between the same two backward operators."""
        return bisect_right(self._backward, self.start[row])


def _chain(cells: OpCells, row: int, outer: int) -> Sequence[int]:
    """Rows from an operator up to one above it."""
    made = [row]
    while made[-1] != outer:
        made.append(int(cells.parent[made[-1]]))
    return made


def _outermost(cells: OpCells, row: int) -> int:
    while cells.parent[row] >= 0 and cells.text("name", int(cells.parent[row])) in _CONVERSIONS:
        row = int(cells.parent[row])
    return row


def _kind(
    cells: OpCells,
    order: _Order,
    row: int,
    kinds: Mapping[int, str | None],
    widens: bool,
    converted: set[tuple[Any, ...]],
) -> str | None:
    """Who wants the conversion whose outermost operator is in this row."""
    above = int(cells.parent[row])
    name = cells.text("name", above) if above >= 0 else ""
    if cells.text("phase", row) == "backward" and cells.forward[row] >= 0:
        # the gradient of a conversion is one too
        return kinds.get(int(cells.forward[row]), BACKWARD) if name == "ToCopyBackward0" else BACKWARD
    if is_operator(name):
        weight = _as_weight(cells, row, above)
        if weight is None:
            return OPERATOR
        key = (cells.number("step", row), order.passes(row), cells.text("module_path", row), weight)
        if key in converted and key[2]:
            return AGAIN
        converted.add(key)
        return OPERATOR
    if cells.text("owner", row) != "user":
        return LIBRARY if cells.text("owner", row) else None
    return LOSS if widens and order.before_loss(row) else LINE


def _as_weight(cells: OpCells, row: int, operator: int) -> str | None:
    """The shape of what is converted when it is the operator's second operand and cannot be the first."""
    own, operands = cells.operands(row)[:1], cells.operands(operator)
    if cells.text("name", operator) not in _WEIGHTED or own != operands[1:2] or own == operands[:1]:
        return None
    return str(own)


_WEIGHTED = frozenset(
    {
        "aten::linear",
        "aten::conv1d",
        "aten::conv2d",
        "aten::conv3d",
        "aten::conv_transpose1d",
        "aten::conv_transpose2d",
        "aten::conv_transpose3d",
    }
)
"""Operators whose second operand is a parameter where they are called by a module."""
