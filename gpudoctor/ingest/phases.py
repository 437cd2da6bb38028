"""Says what a step was doing when an operator ran: input, transfer, forward, backward, optimizer or other.

Ranges in the trace say it for the loader, backward calls and optimizers. The rest is inferred: what runs before the
step's last backward call is forward, what runs after it is other. Two cases need more: an optimizer that gets a closure
runs forward and backward inside its own range, and an update by hand has no range at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded, Columns
from gpudoctor.ingest.nesting import Tree

if TYPE_CHECKING:
    import pandas as pd

BACKWARD_CALL = "gpudoctor::backward"
"""The recorder's range around a backward call."""

ENGINE = "autograd::engine::"
_STEP = "Optimizer.step#"
AUTOGRAD_NODE = re.compile(r"^(?:torch::autograd::\w+|\w+Backward\d*)$")
"""Names of autograd nodes; before torch 1.11 nothing else marks the backward pass."""

_UPDATES = re.compile(r"aten::(_foreach_)?(add|sub|mul|div|addcmul|addcdiv|lerp|copy)_$")
"""In-place arithmetic, of which an update by hand consists."""

NAMES = ("input", "transfer", "forward", "backward", "optimizer", "other")
INPUT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(len(NAMES))

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).min


def named(name: str) -> int:
    """The phase that a range's or operator's name alone says; -1 for none."""
    if name.startswith("enumerate(DataLoader)#"):
        return INPUT
    if name == BACKWARD_CALL or name.startswith(ENGINE) or AUTOGRAD_NODE.match(name):
        return BACKWARD
    if name.startswith((_STEP, "Optimizer.zero_grad#")):
        return OPTIMIZER
    return -1


class Phases:
    """Phases of the operators of one trace.

    Args:
        tree: all operators and ranges, nested.
        name: name code of each, in the tree's order.
        texts: names by code.
        window: number of the profiled step of each, -1 for none.
        recorded: autograd recorded the operator: it is part of a forward (or of a backward, which repeats its number).
        backward: what the profiler itself marks as part of a backward pass.
    """

    def __init__(self, tree: Tree, name: Codes, texts: list[str], window: Ints, recorded: Mask, backward: Mask) -> None:
        self._tree, self._name, self._texts, self._window, self._recorded = tree, name, texts, window, recorded
        self._given = self._by_name()
        self._given[(self._given < 0) & backward] = BACKWARD
        calls = self._rows_named(lambda text: text == BACKWARD_CALL)
        self._calls = calls[np.argsort(tree.start_ns[calls], kind="stable")]
        self._closures: dict[int, list[int]] = {}
        self._around: set[int] = set()
        for row in self._calls.tolist():
            self._note_closure(row)

    def _by_name(self) -> Codes:
        codes = np.unique(self._name)
        own = np.array([named(self._texts[code]) for code in codes] or [-1], np.int32)
        return own[np.searchsorted(codes, self._name)] if len(codes) else np.empty(0, np.int32)

    def _rows_named(self, wanted: Any) -> Ints:
        codes = [code for code in np.unique(self._name).tolist() if wanted(self._texts[code])]
        return np.flatnonzero(np.isin(self._name, codes)) if codes else np.empty(0, np.int64)

    def _upwards(self, row: int) -> Iterator[int]:
        while row >= 0:
            yield row
            row = int(self._tree.parent[row])

    def _text(self, row: int) -> str:
        return self._texts[int(self._name[row])]

    def _note_closure(self, backward: int) -> None:
        path = list(self._upwards(int(self._tree.parent[backward])))
        for at, row in enumerate(path):
            if self._text(row).startswith(_STEP):
                self._closures.setdefault(row, []).append(backward)
                self._around.update(path[:at])
                return

    def of_all(self, by_hand: bool = False) -> Codes:
        """The phase of each operator.

        Args:
            by_hand: steps end at backward calls, so the update by hand comes first in the next one.
        """
        tree, given = self._tree, self._given.copy()
        parent = tree.parent
        inside = np.flatnonzero(np.isin(parent, [*self._closures, *self._around]) & (given < 0) & (parent >= 0))
        for row in inside.tolist():
            given[row] = self._in_closure(row)
        # a range that began before the step says nothing about what the step does in it
        roots = (given < 0) & ((parent < 0) | ((self._window >= 0) & (self._window[parent] < 0)))
        given[roots] = self._of_roots(np.flatnonzero(roots), by_hand)
        return tree.inherit(given)

    def _of_roots(self, rows: Ints, by_hand: bool) -> Codes:
        start, window = self._tree.start_ns[rows], self._window[rows]
        last = self._last_backward()[window]
        made = np.where((last == _NEVER) | (start <= last), FORWARD, OTHER).astype(np.int32)
        if by_hand:
            made[(start < self._hand_updates()[window]) & (window >= 0)] = OPTIMIZER
        made[self._during_backward(rows)] = BACKWARD
        return made

    def _last_backward(self) -> Ints:
        """When each step's last backward call, or the engine's last work in it, began; the last cell is for no step."""
        made = np.full(int(self._window.max(initial=-1)) + 2, _NEVER)
        rows = np.flatnonzero((self._given == BACKWARD) & (self._window >= 0))
        np.maximum.at(made, self._window[rows], self._tree.start_ns[rows])
        return made

    def _during_backward(self, rows: Ints) -> Mask:
        """Whether another thread's work was handed over by a backward call: the reduction of gradients, say."""
        calls, tree = self._calls, self._tree
        if not len(calls):
            return np.zeros(len(rows), bool)
        at = np.searchsorted(tree.start_ns[calls], tree.start_ns[rows], side="right") - 1
        call = calls[at]
        found: Mask = (at >= 0) & (tree.start_ns[rows] < tree.end_ns[call]) & (tree.thread[rows] != tree.thread[call])
        return found

    def _hand_updates(self) -> Ints:
        """End of each step's update by hand: in-place arithmetic before its forward; the last cell is for no step."""
        made = np.full(int(self._window.max(initial=-1)) + 2, _NEVER)
        began = np.full(len(made), np.iinfo(np.int64).max)
        rows = np.flatnonzero((self._recorded | (self._given == BACKWARD)) & (self._window >= 0))
        np.minimum.at(began, self._window[rows], self._tree.start_ns[rows])
        updates = self._rows_named(_UPDATES.match)
        aten = {code for code in np.unique(self._name).tolist() if self._texts[code].startswith("aten::")}
        parent = self._tree.parent[updates]
        own = (parent < 0) | ~np.isin(self._name[parent], list(aten))
        early = (self._window[updates] >= 0) & (self._tree.start_ns[updates] < began[self._window[updates]])
        updates = updates[own & early]
        np.maximum.at(made, self._window[updates], self._tree.end_ns[updates])
        return made

    def _in_closure(self, row: int) -> int:
        """The phase of what an optimizer's step, or a range around its closure, calls directly."""
        if row in self._around:
            return FORWARD
        parent = int(self._tree.parent[row])
        calls = next(self._closures[one] for one in self._upwards(parent) if one in self._closures)
        closure = parent in self._around
        start = self._tree.start_ns
        if start[row] >= start[calls[-1]]:
            return OTHER if closure else OPTIMIZER
        # between two calls of the closure the optimizer works without autograd
        forward = closure or start[row] < start[calls[0]] or self._has_recorded(row)
        return FORWARD if forward else OPTIMIZER

    def _has_recorded(self, row: int) -> bool:
        """Whether autograd recorded the call or one inside it."""
        end = self._tree.end_ns[row]
        last = row + 1
        while (
            last < len(self._name)
            and self._tree.start_ns[last] < end
            and self._tree.depth[last] > self._tree.depth[row]
        ):
            last += 1
        return bool(self._recorded[row:last].any())


def mark_transfers(ops: Columns, kernels: Columns) -> None:
    """Sets the phase `transfer` on operators of the forward that copy from the host to a device, callers included.

    Args:
        ops: columns of `ops`; its `phase` is changed.
        kernels: columns of `kernels`.
    """
    phase, names, direction = _texts(ops["phase"]), _texts(ops["name"]), _texts(kernels["direction"])
    first_ids, op, parent = _ints(ops["op"]), _ints(kernels["op"]), _ints(ops["parent"])
    copies = [code for code, text in enumerate(direction.values) if text == "h2d"]
    first = int(first_ids[0]) if len(first_ids) else 0
    rows = np.unique(op[np.isin(direction.codes, copies) & (op != MISSING)]) - first
    aten = np.array([text.startswith("aten::") for text in names.values] or [False], bool)
    while len(rows):
        rows = rows[(phase.codes[rows] == FORWARD) & aten[names.codes[rows]]]
        phase.codes[rows] = TRANSFER
        above = parent[rows]
        rows = np.unique(above[above != MISSING]) - first


def mark_compiled_optimizers(ops: pd.DataFrame, compilations: Iterable[Mapping[str, Any]]) -> None:
    """Sets the phase `optimizer` on what runs in a compiled region of an optimizer's own code.

    Args:
        ops: the table `ops`; its `phase` is changed.
        compilations: rows of `compilations`.
    """
    regions = {row["compile_id"] for row in compilations if "torch/optim/" in str(row["file"]).replace("\\", "/")}
    inside = ops["region"].isin(regions) & ops["phase"].isin((NAMES[FORWARD], NAMES[OTHER]))
    if inside.any():
        phase = ops["phase"].astype(object)
        phase[inside] = NAMES[OPTIMIZER]
        ops["phase"] = phase.astype("category")


def _texts(column: NDArray[Any] | Coded) -> Coded:
    assert isinstance(column, Coded)
    return column


def _ints(column: NDArray[Any] | Coded) -> Ints:
    assert isinstance(column, np.ndarray)
    return column
