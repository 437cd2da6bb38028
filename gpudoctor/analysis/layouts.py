"""Copies that only change the memory layout of a convolution's tensors, by the library or by operators."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames, op_costs
from gpudoctor.analysis.op_cells import OpCells, is_operator, rows_named
from gpudoctor.profile import frame

LIBRARY_KERNELS = re.compile(
    r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|NCHW2CNHW|CNHW2NCHW|^batched_transpose", re.IGNORECASE
)
"""Kernels with which cuDNN (nchwToNhwcKernel) and MIOpen (transpose_NCHW2CNHW, batched_transpose) change a layout."""

_STEPS = frozenset({"aten::contiguous", "aten::clone", "aten::to", "aten::_to_copy", "aten::copy_"})
_CHANGES = ("aten::contiguous", "aten::to", "aten::_to_copy")


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `layout_conversions`.

    Args:
        ops: the table `ops`.
        kernels: the table `kernels`; None when no device was watched.
    """
    cells = OpCells(ops)
    copies = _copies(ops, cells, kernels)
    return frame("layout_conversions", copies if kernels is None else copies + _library(ops, cells, kernels))


def _library(ops: pd.DataFrame, cells: OpCells, kernels: pd.DataFrame) -> list[dict[str, Any]]:
    names = frames.texts(kernels, "name")
    hit = np.array([*(bool(LIBRARY_KERNELS.search(name)) for name in names.values), False], np.bool_)
    at = np.flatnonzero(hit[names.codes] & frames.is_one_of(kernels, "kind", "kernel"))
    op = frames.rows_of(frames.integers(ops, "op"), frames.integers(kernels, "op"))
    step, dur, ids = (frames.integers(kernels, name) for name in ("launch_step", "dur_ns", "kernel"))
    made = []
    for row in at.tolist():
        place = cells.place(int(op[row])) if op[row] >= 0 else {}
        own = {"kernel": int(ids[row]), "step": int(step[row]) if step[row] >= 0 else None}
        made.append(place | own | {"kind": "library", "dur_ns": max(int(dur[row]), 0)})
    return made


def _copies(ops: pd.DataFrame, cells: OpCells, kernels: pd.DataFrame | None) -> list[dict[str, Any]]:
    if kernels is None:
        taken = frames.integers(ops, "self_ns")
    else:
        taken = op_costs.launched(ops, kernels[frames.is_one_of(kernels, "kind", "kernel")])[0]
    convolved, first = _convolved(ops, cells)
    found: list[_Copy] = []
    for row in rows_named(ops, "aten::copy_").tolist():
        dtypes, shapes = cells.text("dtypes", row).split(","), cells.operands(row)
        step = cells.number("step", row)
        if len(shapes) < 2 or len(shapes[0]) < 4 or shapes[0] != shapes[1] or len(set(dtypes[:2])) != 1:
            continue
        size = str(shapes[0])
        if (step, size) not in convolved or (kind := _kind(cells, row)) is None:
            continue
        if kind == "line" and cells.start[row] < first[step]:  # the input is brought into the layout once: as advised
            continue
        found.append(_Copy(row, step, size, dtypes[0], kind, max(int(taken[row]), 0)))
    if kernels is None:
        found = _of_the_script(found)
    usual = _usual(found)
    return [cells.place(copy.row) | {"kind": copy.kind, "dur_ns": usual[copy.alike]} for copy in found]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy into another layout: row of `ops`, step, size and dtype of the tensor, who wants it, time."""

    row: int
    step: int | None
    size: str
    dtype: str
    kind: str
    dur_ns: int

    @property
    def alike(self) -> tuple[str, str, str]:
        """Equal copies move equal bytes in the same way."""
        return self.size, self.dtype, self.kind


def _of_the_script(found: list[_Copy]) -> list[_Copy]:
    """Copies that a line of the script causes: its own, and those by which operators undo them.

    oneDNN copies for reasons of its own as well (a gradient that is an expanded number, weights), in scripts that never
    change a layout.
    """
    changed = {(copy.step, copy.size) for copy in found if copy.kind == "line"}
    return [copy for copy in found if (copy.step, copy.size) in changed]


def _usual(found: list[_Copy]) -> dict[tuple[str, str, str], int]:
    """The time of equal copies: their median, as the one that was interrupted says nothing about the layout."""
    times: dict[tuple[str, str, str], list[int]] = {}
    for copy in found:
        times.setdefault(copy.alike, []).append(copy.dur_ns)
    return {alike: median_low(some) for alike, some in times.items()}


def _convolved(ops: pd.DataFrame, cells: OpCells) -> tuple[set[tuple[int | None, str]], dict[int | None, int]]:
    """Sizes that go into convolutions or come out of them, by step, and when a step's first convolution begins."""
    sizes: set[tuple[int | None, str]] = set()
    first: dict[int | None, int] = {}
    for row in rows_named(ops, "aten::convolution", "aten::_convolution", "aten::convolution_backward").tolist():
        step = cells.number("step", row)
        first.setdefault(step, int(cells.start[row]))
        sizes |= {(step, str(size)) for size in cells.operands(row)[:2]}
    return sizes, first


def _kind(cells: OpCells, row: int) -> str | None:
    """Who changes the layout: a line of the user's, or an operator that wants another one; None for other copies."""
    changes = False
    above = int(cells.parent[row])
    while above >= 0 and cells.text("name", above) in _STEPS:
        changes = changes or cells.text("name", above) in _CHANGES
        above = int(cells.parent[above])
    if not changes:
        return None
    if above >= 0 and is_operator(cells.text("name", above)):
        return "operator"
    if cells.text("phase", row) == "forward" and cells.text("owner", row) == "user":
        return "line"
    return "operator" if cells.text("phase", row) == "backward" else None
