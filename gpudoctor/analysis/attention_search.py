"""Finds attention that is written out as single operators, by order and shapes.

A softmax over the last dimension of scores `[…, queries, keys]`, before it a batched product that gave so many numbers,
behind it one that takes them, and between the three nothing of that size but scaling, masks and dropout: that is what
`scaled_dot_product_attention` does in one operator. Anything else that touches the scores (a second use of the weights,
an activation, a convolution over heads) rules that out. A call of `scaled_dot_product_attention` that took its `math`
backend is the same operators, called by ATen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gpudoctor.analysis import frames
from gpudoctor.analysis.op_loops import Calls

REACH = 48
"""Operators, views included, that may lie between a product and the softmax: masks are built there as well."""

_SOFTMAX = ("aten::softmax", "aten::_softmax")
_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::baddbmm_")
_SCALES = {f"aten::{name}{end}" for name in ("div", "mul", "to", "_to_copy") for end in ("", "_")}
_MASKS = {f"aten::{name}{end}" for name in ("add", "sub", "masked_fill", "where", "nan_to_num") for end in ("", "_")}
_DROPOUTS = {"aten::dropout", "aten::dropout_", "aten::native_dropout", "aten::feature_dropout"}
_MAKERS = {"aten::masked_fill", "aten::eq", "aten::logical_not", "aten::bitwise_not", "aten::zeros_like", "aten::ne"}
_VIEWS = {
    f"aten::{name}"
    for names in (
        "view reshape transpose permute expand contiguous type_as clone expand_as unsqueeze squeeze",
        "flatten unflatten t detach split chunk unbind slice select",
    )
    for name in names.split()
}
_ADDS = ("aten::add", "aten::add_", "aten::sub", "aten::sub_")
_MATH = "aten::_scaled_dot_product_attention_math"

Shape = tuple[int, ...]


@dataclass(slots=True)
class Pattern:
    """One attention of one step.

    Attributes:
        softmax: row of the softmax, or of the call that took the math backend.
        product: row of the operator that made the scores; -1 for the math backend.
        value: row of the operator that multiplied with the values; -1 likewise.
        between: rows of what works on the scores, the softmax included.
        scores: shape of the scores.
        head_dim: width of a query.
        mask: something was added, or filled in.
        dropout: the weights were dropped out.
        added: rows of what added to the scores, of those between.
    """

    softmax: int
    product: int
    value: int
    between: list[int]
    scores: Shape
    head_dim: int
    mask: bool = False
    dropout: bool = False
    math: bool = field(default=False)
    added: list[int] = field(default_factory=list)


@lru_cache(maxsize=4096)
def _shapes(text: str) -> tuple[Shape, ...]:
    """Input shapes as tuples; what is no shape is empty."""
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return tuple(
        tuple(one) if isinstance(one, list) and all(isinstance(size, int) for size in one) else () for one in found
    )


class Finder:
    """Searches the operators of steps, in their order."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.shape_column = frames.texts(calls.ops, "shapes")
        self.argument_column = frames.texts(calls.ops, "arguments")
        phase = frames.is_one_of(calls.ops, "phase", "forward", "other")
        eager = frames.texts(calls.ops, "region").codes < 0
        rows = np.flatnonzero(calls.aten & (calls.outer == np.arange(len(calls.ids))) & phase & eager)
        self.roots = rows[np.lexsort((calls.start[rows], calls.thread[rows], calls.step[rows]))]
        self.products: dict[int, list[tuple[Shape, ...]]] = {}
        for row in np.flatnonzero(calls.named(*_PRODUCTS)).tolist():
            self.products.setdefault(int(calls.outer[row]), []).append(self.shapes(row))

    def name(self, row: int) -> str:
        """Name of the operator."""
        return str(self.calls.name.values[self.calls.name.codes[row]])

    def shapes(self, row: int) -> tuple[Shape, ...]:
        """Shapes of its inputs; none where they were not recorded."""
        code = int(self.shape_column.codes[row])
        return _shapes(self.shape_column.values[code]) if code >= 0 else ()

    def patterns(self) -> Iterator[Pattern]:
        """Every attention in which the scores serve nothing else."""
        names = [self.name(row) for row in self.roots.tolist()]
        for at, name in enumerate(names):
            if name in _SOFTMAX and (found := self._around(at, names)) is not None:
                yield found
        for row in np.flatnonzero(self.calls.named(_MATH)).tolist():
            if self.calls.outer[row] in self.products and (found := self._math(row)) is not None:
                yield found

    def _math(self, row: int) -> Pattern | None:
        shapes = self.shapes(row)
        if len(shapes) < 3 or len(shapes[0]) < 2 or len(shapes[1]) < 2:
            return None
        query, key = shapes[0], shapes[1]
        outer = int(self.calls.outer[row])
        mask = len(shapes) > 3 and shapes[3] != ()
        return Pattern(outer, -1, -1, [outer], (*query[:-1], key[-2]), query[-1], mask, math=True)

    def _around(self, at: int, names: Sequence[str]) -> Pattern | None:
        softmax = int(self.roots[at])
        shapes = self.shapes(softmax)
        scores = shapes[0] if shapes else ()
        if len(scores) < 3 or not self._over_last(softmax, scores):
            return None
        made = Pattern(softmax, -1, -1, [softmax], scores, 0)
        before = self._walk(range(at - 1, max(-1, at - 1 - REACH), -1), names, made, self._gives)
        if before < 0:
            return None
        made.product = int(self.roots[before])
        behind = self._walk(range(at + 1, min(len(names), at + 1 + REACH)), names, made, self._takes)
        if behind < 0 or self._used_again(behind, names, scores):
            return None
        made.value = int(self.roots[behind])
        return made

    def _over_last(self, softmax: int, scores: Shape) -> bool:
        code = int(self.argument_column.codes[softmax])
        if code < 0:
            return True  # not recorded: the shapes of what follows decide
        try:
            return int(json.loads(self.argument_column.values[code])[1]) in (-1, len(scores) - 1)
        except (ValueError, IndexError, TypeError):
            return True

    def _walk(self, positions: range, names: Sequence[str], made: Pattern, wanted: Any) -> int:
        """Position of the product that is wanted; -1 when something else works on the scores before it is reached."""
        size = prod(made.scores)
        lane = self.calls.step[made.softmax], self.calls.thread[made.softmax]
        for at in positions:
            row, name = int(self.roots[at]), names[at]
            if (self.calls.step[row], self.calls.thread[row]) != lane or name in _SOFTMAX:
                return -1
            for shapes in self.products.get(row, ()):
                if (width := wanted(shapes, made.scores)) is not None:
                    made.head_dim = made.head_dim or width
                    return at
            if not any(prod(shape) == size for shape in self.shapes(row) if shape):
                continue
            if name in _VIEWS:
                continue
            if name not in _SCALES | _MASKS | _DROPOUTS | _MAKERS:
                return -1
            made.mask |= name in _MASKS
            made.dropout |= name in _DROPOUTS
            made.between.append(row)
            if name in _ADDS:
                made.added.append(row)
        return -1

    @staticmethod
    def _gives(shapes: tuple[Shape, ...], scores: Shape) -> int | None:
        """Width of the queries, when a batched product of these inputs has the scores' size."""
        pair = shapes[1:3] if len(shapes) > 2 and len(shapes[2]) == 3 else shapes[:2]
        if len(pair) < 2 or len(pair[0]) != 3 or len(pair[1]) != 3:
            return None
        (batch, rows, width), columns = pair[0], pair[1][2]
        fits = batch * rows * columns == prod(scores) and scores[-1] in (rows, columns)
        return width if fits else None

    @staticmethod
    def _takes(shapes: tuple[Shape, ...], scores: Shape) -> int | None:
        """Width of the values, when one input of a batched product has the scores' size."""
        pair = shapes[1:3] if len(shapes) > 2 and len(shapes[2]) == 3 else shapes[:2]
        if len(pair) < 2 or len(pair[0]) != 3 or len(pair[1]) != 3:
            return None
        for one, other in (pair, pair[::-1]):
            if prod(one) == prod(scores) and scores[-1] in one[1:]:
                return other[2] if other[1] == scores[-1] else other[1]
        return None

    def _used_again(self, behind: int, names: Sequence[str], scores: Shape) -> bool:
        """Whether something computes with the weights once more, before other scores of that size are made."""
        lane = self.calls.step[self.roots[behind]], self.calls.thread[self.roots[behind]]
        for at in range(behind + 1, min(len(names), behind + 1 + REACH)):
            row = int(self.roots[at])
            if (self.calls.step[row], self.calls.thread[row]) != lane:
                return False
            if any(self._gives(shapes, scores) is not None for shapes in self.products.get(row, ())):
                return False
            if scores in self.shapes(row) and names[at] not in _VIEWS:
                return True
        return False
