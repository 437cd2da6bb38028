"""What the dense gradient of each embedding costs in a profiled step: zeros, adding to them, stepping on all rows.

`aten::embedding_dense_backward` makes a gradient of the size of the whole table, however few rows were looked up, and
an optimizer then works on every row. The operators say how large the table is and how many rows were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import constructions, frames
from gpudoctor.profile import frame

_BACKWARDS = {"aten::embedding_dense_backward": (2, 4, None), "aten::_embedding_bag_dense_backward": (5, 6, 7)}
"""Of each operator's arguments: where the number of rows, `scale_grad_by_freq` and the bag's mode stand."""

_AROUND = (
    "aten::embedding_backward",
    "aten::_embedding_bag_backward",
    "Embedding",
    "autograd::engine::evaluate_function: Embedding",
)
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_STEP = "Optimizer.step#"
_MAX_MODE = "2"

TAKES_SPARSE = frozenset({"SGD", "Adagrad", "SparseAdam"})
"""Optimizers that take sparse gradients, by the documentation of nn.Embedding."""

_SIZES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2}


class _Ops:
    """Columns of `ops` that are asked for row by row."""

    def __init__(self, ops: pd.DataFrame) -> None:
        self.ops = ops
        self.names = [str(name) for name in ops["name"].astype(object)]
        self.optimizing = np.flatnonzero(frames.is_one_of(ops, "phase", "optimizer")).tolist()
        self.start = frames.integers(ops, "start_ns")
        self.dur = frames.integers(ops, "dur_ns")
        self.thread = frames.integers(ops, "thread")
        self.parent = frames.rows_of(frames.integers(ops, "op"), frames.integers(ops, "parent"))

    def cell(self, column: str, row: int) -> Any:
        value = self.ops[column].iloc[row]
        return None if pd.isna(value) else value

    def parsed(self, column: str, row: int) -> list[Any]:
        try:
            made = json.loads(self.cell(column, row) or "[]")
        except ValueError:
            return []
        return made if isinstance(made, list) else []

    def named(self, *names: str) -> list[int]:
        return [row for row, name in enumerate(self.names) if name in names]


class _Time:
    """Time of an operator with what it calls: of its kernels where a device was watched, else on the host."""

    def __init__(self, ops: _Ops, kernels: pd.DataFrame | None) -> None:
        self._ops, self._kernels = ops, kernels
        if kernels is not None:
            rows = frames.rows_of(frames.integers(ops.ops, "op"), frames.integers(kernels, "op"))
            self._dur = frames.integers(kernels, "dur_ns")[rows >= 0]
            rows = rows[rows >= 0]
            self._start, self._thread = ops.start[rows], ops.thread[rows]

    def of(self, row: int) -> int:
        if self._kernels is None:
            return int(self._ops.dur[row])
        start = self._ops.start[row]
        inside = (self._thread == self._ops.thread[row]) & (self._start >= start)
        return int(self._dur[inside & (self._start < start + max(self._ops.dur[row], 1))].sum())


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None, sources: Mapping[str, str]) -> pd.DataFrame:
    """The table `embedding_gradients`.

    Args:
        ops: the table `ops`; operators with shapes count.
        kernels: the table `kernels`; None when no device was watched.
        sources: the user's files, for where tables and optimizers are constructed.
    """
    picked = ops[ops["shapes"].notna() | ops["name"].astype(str).str.startswith(_STEP)]
    steps = int(picked.loc[picked["shapes"].notna(), "step"].nunique())
    table = _Ops(ops)
    found: dict[tuple[str, int, int], list[int]] = {}
    for row in table.named(*_BACKWARDS):
        key = _key(table, row)
        if key is not None:
            found.setdefault(key, []).append(row)
    if not found or not steps:
        return frame("embedding_gradients", [])
    time, made = _Time(table, kernels), constructions.of(sources)
    optimizer = _optimizer(table)
    by_shape: dict[tuple[int, int], int] = {}
    for _, count, width in found:
        by_shape[count, width] = by_shape.get((count, width), 0) + 1
    parameters = {shape: _parameters(table, shape) for shape in by_shape}
    stepping = _stepping(table, time, set(by_shape))
    result = []
    for (module, count, width), backwards in found.items():
        shape = (count, width)
        first = backwards[0]
        around = {_outermost(table, row) for row in backwards}
        known = parameters[shape]
        made_at = made.embedding(module)
        optimizer_at = made.optimizer(optimizer[0]) if optimizer else None
        looked_up = sum(prod(table.parsed("shapes", row)[1]) for row in backwards)
        dtype = str(table.cell("dtypes", first) or "").split(",")[0]
        result.append(
            {
                "module": module or None,
                "file": table.cell("file", first),
                "line": table.cell("line", first),
                "function": table.cell("function", first),
                "rows": count,
                "width": width,
                "looked_up": round(looked_up / steps),
                "bytes": count * width * _SIZES.get(dtype, 4),
                "gradient_ns": round(sum(map(time.of, around)) / steps),
                "optimizer_ns": round(stepping.get(shape, 0) / max(known, by_shape[shape]) / steps),
                "optimizer": optimizer[0] if optimizer else None,
                "takes_sparse": _takes_sparse(table, backwards, optimizer),
                "tied": _has_head(table, shape) and known <= by_shape[shape],
                "made_file": made_at and made_at.file,
                "made_line": made_at and made_at.line,
                "optimizer_file": optimizer_at and optimizer_at.file,
                "optimizer_line": optimizer_at and optimizer_at.line,
                "step_file": table.cell("file", optimizer[1]) if optimizer else None,
                "step_line": table.cell("line", optimizer[1]) if optimizer else None,
            }
        )
    return frame("embedding_gradients", result)


def _key(table: _Ops, row: int) -> tuple[str, int, int] | None:
    """Module, rows and width of the table that a backward operator makes a gradient for."""
    at = _BACKWARDS[table.names[row]][0]
    arguments, shapes = table.parsed("arguments", row), table.parsed("shapes", row)
    try:
        return str(table.cell("module_path", row) or ""), int(arguments[at]), int(shapes[0][-1])
    except (IndexError, TypeError, ValueError):
        return None


def _outermost(table: _Ops, row: int) -> int:
    """The engine's range around the operator, in which a second gradient of the same table is added as well."""
    while (up := int(table.parent[row])) >= 0 and table.names[up].startswith(_AROUND):
        row = up
    return row


def _optimizer(table: _Ops) -> tuple[str, int] | None:
    """Class of the optimizer that steps, and the first row of its range; None for none, or several."""
    found: dict[str, int] = {}
    for row, name in enumerate(table.names):
        if name.startswith(_STEP):
            found.setdefault(name.removeprefix(_STEP).split(".")[0], row)
    return next(iter(found.items())) if len(found) == 1 else None


def _parameters(table: _Ops, shape: tuple[int, int]) -> int:
    """How many parameters of a shape get a gradient in a step; 0 where the trace does not tell."""
    steps = [
        int(table.ops["step"].iloc[row])
        for row in table.named(_ACCUMULATES)
        if table.parsed("shapes", row)[:1] == [list(shape)] and table.cell("step", row) is not None
    ]
    return max((steps.count(step) for step in set(steps)), default=0)


def _stepping(table: _Ops, time: _Time, shapes: set[tuple[int, int]]) -> dict[tuple[int, int], float]:
    """Time of the optimizers' operators by the shape they work on; one on a list of tensors counts by their sizes."""
    spent: dict[tuple[int, int], float] = {}
    for row in table.optimizing:
        up = int(table.parent[row])
        if not table.names[row].startswith("aten::") or (up >= 0 and table.names[up].startswith("aten::")):
            continue
        worked_on: list[Any] = next(iter(table.parsed("shapes", row)), [])
        several = worked_on if worked_on and isinstance(worked_on[0], list) else [worked_on]
        whole = sum(map(prod, several))
        for shape in shapes:
            own = several.count(list(shape)) * prod(shape)
            if own:
                spent[shape] = spent.get(shape, 0) + time.of(row) * own / whole
    return spent


def _has_head(table: _Ops, shape: tuple[int, int]) -> bool:
    """Whether a matrix product of the forward pass takes a matrix of the table's shape: the table itself, perhaps."""
    wanted = (list(shape), list(reversed(shape)))
    products = frames.is_one_of(table.ops, "op_class", "gemm") & frames.is_one_of(table.ops, "phase", "forward")
    rows = np.flatnonzero(products).tolist()
    return any(one in wanted for row in rows for one in table.parsed("shapes", row))


def _takes_sparse(table: _Ops, backwards: Sequence[int], optimizer: tuple[str, int] | None) -> bool | None:
    """Whether the table's gradient could be sparse as things are; None when the optimizer is not known."""
    for row in backwards:
        _, by_frequency, mode = _BACKWARDS[table.names[row]]
        arguments = [str(argument) for argument in table.parsed("arguments", row)]
        if arguments[by_frequency : by_frequency + 1] == ["True"] or (
            mode is not None and arguments[mode : mode + 1] == [_MAX_MODE]
        ):
            return False
    return optimizer[0] in TAKES_SPARSE if optimizer else None
