"""Python loops that call the same operators over and over in one step, found in the operators.

The same line calls the same operator of the same module many times between two backward calls. Loops that run
interleaved are one. Such a loop *walks along a tensor* when its selects, slices or comparisons with a number take
another argument each time, or when it runs as often as `unbind`, `split` or iterating over the tensor gave pieces.

What is left out on purpose: loops over layers (each has a module of its own), over micro-batches (a backward call lies
between), over samples of a dataset (phase input), over parameters in an optimizer, and whatever runs compiled. An
operator that ATen itself calls in a loop, as `aten::gru` does, is no loop of the user's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.analysis.intervals import Ints, Mask

LEAST = 8
"""Calls a step from which on a line counts as a loop here; rules ask for more."""

_ONE_PIECE = ("aten::select", "aten::slice", "aten::narrow", "aten::eq", "aten::ne", "aten::lt", "aten::le")
_PIECES = ("aten::unbind", "aten::split", "aten::split_with_sizes", "aten::chunk", "aten::tensor_split")


class Calls:
    """Columns of the operators that matter here, and who called whom.

    Attributes:
        outer: row of the outermost ATen operator around each, itself included; -1 outside of ATen operators.
    """

    def __init__(self, ops: pd.DataFrame) -> None:
        self.ops = ops
        self.ids = frames.integers(ops, "op")
        self.start, self.dur = frames.integers(ops, "start_ns"), np.maximum(frames.integers(ops, "dur_ns"), 0)
        self.step, self.thread = frames.integers(ops, "step"), frames.integers(ops, "thread")
        self.line = frames.integers(ops, "line")
        self.name, self.file = frames.texts(ops, "name"), frames.texts(ops, "file")
        self.aten = begins_with(self.name.values, "aten::")[self.name.codes]
        parent = frames.rows_of(self.ids, frames.integers(ops, "parent"))
        self.parent = np.where(parent >= 0, np.where(self.aten[parent], parent, -1), -1)
        self.outer = np.where(self.aten, np.arange(len(ops)), -1)
        inside = self.aten & (self.parent >= 0)
        while inside.any():  # one pass a level; operators of ATen nest a dozen deep at most
            above = self.parent[self.outer]
            inside &= above >= 0
            self.outer[inside] = above[inside]

    def named(self, *names: str) -> Mask:
        """Rows of operators of these names."""
        return frames.is_one_of(self.ops, "name", *names)

    def roots(self) -> Mask:
        """Operators that the user's eager code called in forward or behind backward, on a line that is known."""
        phase = frames.is_one_of(self.ops, "phase", "forward", "other")
        eager = frames.texts(self.ops, "region").codes < 0
        # whoever calls layer after layer looks like a loop as long as it is not known which layer
        module = frames.texts(self.ops, "module").codes, frames.texts(self.ops, "module_path").codes
        told = (module[0] < 0) | (module[1] >= 0)
        exact = frames.is_one_of(self.ops, "precision", "call") & (self.file.codes >= 0)
        known: Mask = self.aten & (self.outer == np.arange(len(self.ids))) & phase & eager & told & exact
        return known

    def segment(self) -> Ints:
        """How many backward operators of its step began before each operator: it changes where backward was called."""
        begins = np.sort(self.start[frames.is_one_of(self.ops, "phase", "backward")])
        return np.searchsorted(begins, self.start)


def begins_with(texts: Sequence[str], prefix: str) -> Mask:
    """Which texts begin so; the last cell answers for code -1."""
    return np.array([*(text.startswith(prefix) for text in texts), False], np.bool_)


def bodies(calls: Calls) -> pd.DataFrame:
    """The calls that loops repeat: row, loop number, and how many iterations along which tensor the loop takes."""
    rows = np.flatnonzero(calls.roots())
    path = frames.texts(calls.ops, "module_path")
    seen = pd.DataFrame(
        {
            "row": rows,
            "step": calls.step[rows],
            "thread": calls.thread[rows],
            "segment": calls.segment()[rows],
            "file": calls.file.codes[rows],
            "line": calls.line[rows],
            "name": calls.name.codes[rows],
            "path": path.codes[rows],
            "start": calls.start[rows],
            "end": calls.start[rows] + calls.dur[rows],
        }
    )
    lane = ["step", "thread", "segment"]
    seen["call"] = seen.groupby([*lane, "file", "line", "name", "path"]).ngroup()
    seen = _with_pieces(seen, calls)
    sizes = seen.groupby("call")["row"].transform("size")
    repeated = seen[sizes >= LEAST].copy()
    if not len(repeated):
        return repeated
    spans = repeated.groupby("call").agg(
        step=("step", "first"),
        thread=("thread", "first"),
        segment=("segment", "first"),
        start=("start", "min"),
        end=("end", "max"),
        size=("row", "size"),
    )
    spans = spans.sort_values([*lane, "start"])
    spans["loop"] = _interleaved(spans, lane)
    repeated["loop"] = repeated["call"].map(spans["loop"])
    repeated["size"] = repeated["call"].map(spans["size"])
    return _along_tensors(repeated, seen, spans)


def _interleaved(spans: pd.DataFrame, lane: list[str]) -> Ints:
    """Number of the loop that each repeated call belongs to: those whose times overlap are one."""
    lanes = spans.groupby(lane).ngroup().to_numpy()
    start, end = spans["start"].to_numpy(), spans["end"].to_numpy()
    latest = pd.Series(end).groupby(lanes).cummax().to_numpy()
    apart = np.ones(len(spans), bool)
    apart[1:] = (lanes[1:] != lanes[:-1]) | (start[1:] > latest[:-1])
    return np.cumsum(apart) - 1


def _with_pieces(seen: pd.DataFrame, calls: Calls) -> pd.DataFrame:
    """How many pieces of one tensor each call takes: different arguments of one call, or the pieces of a split."""
    rows = seen["row"].to_numpy()
    shapes, arguments = frames.texts(calls.ops, "shapes"), frames.texts(calls.ops, "arguments")
    seen["shape"], seen["argument"] = shapes.codes[rows], arguments.codes[rows]
    single = calls.named(*_ONE_PIECE)[rows] & (seen["argument"] >= 0).to_numpy()
    distinct = seen[single].groupby(["call", "shape"])["argument"].nunique().groupby(level="call").max()
    seen["pieces"] = seen["call"].map(distinct).fillna(0).astype(np.int64)
    inner = calls.named("aten::select", "aten::narrow", "aten::slice") & (calls.outer != np.arange(len(calls.ids)))
    narrowed = calls.named("aten::slice") & calls.named("aten::narrow")[np.maximum(calls.parent, 0)]
    counted = np.bincount(calls.outer[inner & ~narrowed & (calls.outer >= 0)], minlength=len(calls.ids))
    several = calls.named(*_PIECES)[rows]
    seen["split"] = np.where(several, counted[rows], 0)
    seen["along"] = [
        _along(shape, argument, bool(split))
        for shape, argument, split in zip(
            (shapes.values[code] if code >= 0 else "" for code in seen["shape"]),
            (arguments.values[code] if code >= 0 else "" for code in seen["argument"]),
            seen["split"],
            strict=True,
        )
    ]
    return seen


def _along(shape: str, argument: str, split: bool) -> str | None:
    """Which dimension of what is taken apart, e.g. `dimension 1 of a [16, 150, 10] tensor`; None when not known."""
    try:
        base, given = json.loads(shape)[0], json.loads(argument)
        if not base or not all(isinstance(size, int) for size in base):
            return None
        number = int(given[-1 if split else 1])
    except (ValueError, IndexError, TypeError):
        return None
    return f"dimension {number % len(base)} of a {base} tensor" if -len(base) <= number < len(base) else None


def _along_tensors(repeated: pd.DataFrame, seen: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Adds to each loop the pieces that it walks along, and their tensor."""
    most = repeated.sort_values("pieces", kind="stable").groupby("loop").last()
    pieces = most["pieces"].where(most["pieces"] >= LEAST, 0)
    along = most["along"].where(pieces > 0)
    lane = ["step", "thread", "segment"]
    for split in seen[seen["split"] >= LEAST].to_dict("records"):
        later = spans[(spans[lane] == [split[name] for name in lane]).all(axis=1) & (spans["end"] > split["start"])]
        if not len(later):
            continue
        loop, count = later["loop"].iloc[0], int(split["split"])
        sizes = later.loc[later["loop"] == loop, "size"]
        # a loop may leave out the first or the last piece
        if pieces[loop] < count and ((sizes % count == 0) | (sizes == count - 1)).any():
            pieces[loop], along[loop] = count, split["along"]
    repeated["pieces"] = repeated["loop"].map(pieces)
    repeated["along"] = repeated["loop"].map(along)
    repeated["iterations"] = repeated["loop"].map(repeated.groupby("loop")["size"].max())
    return repeated
