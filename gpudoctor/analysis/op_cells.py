"""Single cells of `ops` by row, for derived tables that look at few operators and what stands around them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.analysis.frames import Rows

_TEXTS = ("name", "op_class", "dtypes", "shapes", "arguments", "phase", "file", "function", "module", "module_path")
_MORE_TEXTS = ("precision", "owner", "observation")


class OpCells:
    """The table `ops`, one cell at a time; texts are empty and numbers None for null."""

    def __init__(self, ops: pd.DataFrame) -> None:
        self._texts = {name: frames.texts(ops, name) for name in (*_TEXTS, *_MORE_TEXTS)}
        self._numbers = {name: frames.integers(ops, name) for name in ("op", "step", "line", "thread")}
        self.start = frames.integers(ops, "start_ns")
        ids = self._numbers["op"]
        self.parent: Rows = frames.rows_of(ids, frames.integers(ops, "parent"))
        self.forward: Rows = frames.rows_of(ids, frames.integers(ops, "forward_op"))

    def text(self, column: str, row: int) -> str:
        """A text, empty for null."""
        coded = self._texts[column]
        code = coded.codes[row]
        return coded.values[code] if code >= 0 else ""

    def number(self, column: str, row: int) -> int | None:
        """op, step, line or thread, None for null."""
        value = int(self._numbers[column][row])
        return value if value >= 0 else None

    def operands(self, row: int) -> list[Any]:
        """The shapes of an operator's inputs; empty when they were not recorded."""
        text = self.text("shapes", row)
        made = json.loads(text) if text else []
        return made if isinstance(made, list) else []

    def above(self, row: int) -> Iterator[int]:
        """Rows of the operators around one, innermost first."""
        while (row := int(self.parent[row])) >= 0:
            yield row

    def place(self, row: int) -> dict[str, Any]:
        """The columns that say where an operator was called."""
        return {
            "op": self.number("op", row),
            "step": self.number("step", row),
            "phase": self.text("phase", row) or None,
            "file": self.text("file", row) or None,
            "line": self.number("line", row),
            "function": self.text("function", row) or None,
            "module": self.text("module_path", row) or self.text("module", row) or None,
            "precision": self.text("precision", row) or None,
        }


def is_operator(name: str) -> bool:
    """Whether a range is an operator of torch's, not an annotation, the recorder's range or a node of the engine's."""
    return "::" in name and not name.startswith(("gpudoctor::", "autograd::", "torch::"))


def rows_named(ops: pd.DataFrame, *names: str) -> Rows:
    """Rows of the operators with one of these names, in the order of their start."""
    at = np.flatnonzero(frames.is_one_of(ops, "name", *names))
    return at[np.argsort(frames.integers(ops, "start_ns")[at], kind="stable")]
