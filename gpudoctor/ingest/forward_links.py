"""Ties backward operators to the forward operators they differentiate, and gives them those lines.

Autograd numbers the nodes of its graph; the forward operator that made a node and the engine's range that runs it carry
the same number, the last operator of a number is the one. Some code in a backward call is forward code, though: what
checkpointing computes again, a hook, the `backward` of the user's own autograd.Function. It ran lines of its own, and
keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.ingest.kineto import Node

ENGINE = "autograd::engine::"
CALL = "gpudoctor::backward"
_EVALUATE = f"{ENGINE}evaluate_function: "
_COPY_SLICES = "torch::autograd::CopySlices"
_PLACE = ("file", "line", "precision", "function", "module")

Key = tuple[int, int]


class ForwardLinks:
    """Finds forward operators for the rows of `ops`, in time order.

    Args:
        made: the rows so far; the caller appends to it.
        first_id: op id of the first row.
    """

    def __init__(self, made: Sequence[Mapping[str, Any]], first_id: int) -> None:
        self._made, self._first_id = made, first_id
        self._forwards: dict[Key, int] = {}
        self._again: dict[Key, int] = {}  # made inside a backward call: recomputed, or differentiable themselves
        self._marks: dict[int, int | None] = {}  # of the engine's range around a row
        self._nested: set[int] = set()  # rows inside a backward call inside a backward call

    def add(self, node: Node, row: dict[str, Any], parent: int | None) -> None:
        """Places the row that is about to be appended; `parent` is the index of the row above it."""
        here = len(self._made)
        key = (row["step"], row["sequence"]) if row["sequence"] is not None else None
        if row["phase"] != "backward":
            if key is not None:
                self._forwards[key] = here
            return
        above = self._made[parent] if parent is not None else None
        if parent in self._nested or (node.name == CALL and above is not None and above["phase"] == "backward"):
            self._nested.add(here)
        engine = node.name.startswith(ENGINE) or node.name == CALL
        mark = self._marks[here] = node.mark if engine or parent is None else self._marks.get(parent, node.mark)
        node_itself = above is not None and above["name"] == f"{_EVALUATE}{node.name}"
        forward = self._find(node.name, key, here) if engine or node_itself else None
        if forward is not None:
            row["forward_op"] = self._first_id + forward
        elif above is not None and node.name != CALL:
            row["forward_op"] = above["forward_op"]
        if above is not None and row["sequence"] is None:
            row["sequence"] = above["sequence"]
        ran_lines = node.mark != mark
        if key is not None and not engine and not node_itself:
            self._again[key] = here
        if row["forward_op"] is None or ran_lines or row["owner"] == "user":
            return
        source = self._made[row["forward_op"] - self._first_id]
        row["module_path"] = row["module_path"] or source["module_path"]
        for name in _PLACE:
            row[name] = source[name]

    def _find(self, name: str, key: Key | None, here: int) -> int | None:
        if key is None:
            return None
        step, number = key
        keys = [key]
        if name.endswith(_COPY_SLICES):  # made right after the node of the operator that changed a view in place
            keys.append((step, number - 1))
        tables = (self._again, self._forwards) if here in self._nested else (self._forwards, self._again)
        return next((table[k] for k in keys for table in tables if k in table), None)
