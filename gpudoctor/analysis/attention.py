"""What attention costs that runs as single operators: the table `attention_patterns`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.analysis.attention_search import Finder, Pattern, Shape
from gpudoctor.analysis.intervals import Mask
from gpudoctor.analysis.op_loops import Calls, begins_with


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Rows of `attention_patterns`; times and counts are means over the steps watched with shapes.

    Args:
        ops: the table `ops`.
        kernels: the table `kernels`; None without a device.
    """
    if frames.is_one_of(ops, "observation", "detail").any():
        ops = ops[frames.is_one_of(ops, "observation", "detail")].reset_index(drop=True)
    calls = Calls(ops)
    finder = Finder(calls)
    found = list(finder.patterns())
    if not found:
        return []
    return _rows(found, finder, _Costs(calls, kernels))


def _learned(calls: Calls) -> Mask:
    """Which operators that add to scores have a gradient for what they add, e.g. for a bias by relative position.

    Backward sums the gradient over the dimensions in which the smaller operand was repeated, and does so only for one
    that needs a gradient. Operands of one size are not summed: backward does not tell, and they count (another layer's
    scores, a bias for a batch of one).

    Returns:
        By row of `calls`.
    """
    ops = calls.ops
    parent = frames.rows_of(calls.ids, frames.integers(ops, "parent"))
    forward = frames.rows_of(calls.ids, frames.integers(ops, "forward_op"))
    node = begins_with(calls.name.values, "autograd::engine::evaluate_function")[calls.name.codes]
    sums = np.flatnonzero(calls.named("aten::sum", "aten::sum_to_size") & (parent >= 0))
    above = parent[sums]
    for _ in range(2):  # inside of AddBackward0, or beside it
        above = np.where((above >= 0) & ~node[above], parent[above], above)
    above = above[(above >= 0) & node[above] & (forward[above] >= 0)]
    found = np.zeros(len(calls.ids), np.bool_)
    found[calls.outer[forward[above]]] = True
    return found


def _one_size(shapes: Sequence[Shape]) -> bool:
    return len(shapes) > 1 and len(shapes[1]) > 0 and prod(shapes[0]) == prod(shapes[1])


class _Costs:
    """What operators cost with everything inside them and their backward."""

    def __init__(self, calls: Calls, kernels: pd.DataFrame | None) -> None:
        ops = calls.ops
        forward = frames.rows_of(calls.ids, frames.integers(ops, "forward_op"))
        backward_of = np.where(forward >= 0, calls.outer[forward], -1)
        nodes = begins_with(calls.name.values, "autograd::engine::evaluate_function")[calls.name.codes]
        self.backward_ns = np.zeros(len(calls.ids) + 1, np.int64)
        np.add.at(self.backward_ns, np.where(nodes, backward_of, -1), calls.dur)
        self.forward_ns = calls.dur
        self.kernel_ns: Any = None
        if kernels is not None:
            at = frames.rows_of(calls.ids, frames.integers(kernels, "op"))
            owner = np.where(forward >= 0, backward_of, calls.outer)
            self.kernel_ns = np.zeros(len(calls.ids) + 1, np.int64)
            np.add.at(self.kernel_ns, np.where(at >= 0, owner[at], -1), frames.integers(kernels, "dur_ns"))

    def of(self, rows: Sequence[int]) -> dict[str, int]:
        """Forward, backward and, with a device, kernel time of outermost operators."""
        made = {"forward_ns": int(self.forward_ns[rows].sum()), "backward_ns": int(self.backward_ns[rows].sum())}
        return made | ({"kernel_ns": int(self.kernel_ns[rows].sum())} if self.kernel_ns is not None else {})


def _rows(found: Sequence[Pattern], finder: Finder, costs: _Costs) -> list[dict[str, Any]]:
    """One row for each line and shape."""
    calls = finder.calls
    steps = max(1, len(np.unique(calls.step)))
    groups: dict[tuple[Any, ...], list[Pattern]] = {}
    for one in found:
        place = (calls.file.codes[one.softmax], calls.line[one.softmax])
        groups.setdefault((*place, one.scores, one.head_dim, one.math), []).append(one)
    columns = {name: frames.texts(calls.ops, name) for name in ("file", "function", "module", "module_path", "dtypes")}
    columns["precision"] = frames.texts(calls.ops, "precision")

    def text(name: str, row: int) -> str | None:
        code = int(columns[name].codes[row])
        return columns[name].values[code] if code >= 0 else None

    def line(row: int) -> int | None:
        return int(calls.line[row]) if row >= 0 and calls.line[row] >= 0 else None

    learned = _learned(calls)
    made = []
    for patterns in groups.values():
        first = patterns[0]
        sums = costs.of([row for one in patterns for row in one.between])
        made.append(
            {
                **{name: text(name, first.softmax) for name in ("file", "function", "module", "module_path")},
                "precision": text("precision", first.softmax),
                "line": line(first.softmax),
                "product_line": line(first.product),
                "value_line": line(first.value),
                "math_backend": first.math,
                "calls": -(-len(patterns) // steps),
                "batch": prod(first.scores[:-2]),
                "dimensions": len(first.scores),
                "queries": first.scores[-2],
                "keys": first.scores[-1],
                "head_dim": first.head_dim,
                "dtype": (text("dtypes", first.softmax) or "").split(",")[0] or None,
                "mask": any(one.mask for one in patterns),
                "learned_bias": any(
                    learned[row] or _one_size(finder.shapes(row)) for one in patterns for row in one.added
                ),
                "dropout": any(one.dropout for one in patterns),
                **{name: ns // steps for name, ns in sums.items()},
            }
        )
    return made


def measured(ops: pd.DataFrame) -> bool:
    """Whether the operators have shapes."""
    return bool(ops["shapes"].notna().any())
