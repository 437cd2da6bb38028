"""The table `padding`: how much of each batch is padding, and the time of the operators that run over its positions.

An operator runs over the positions of `rows` sequences of `width` when its input has them as dimensions, or their
product as one. Time counts, not the share: ids that are packed or summed up right behind the embedding cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudoctor.analysis import frames, op_costs
from gpudoctor.analysis.intervals import Ints
from gpudoctor.profile import frame

MIN_WIDTH = 8
"""Positions. Shorter ones are slots of features rather than sequences, and their sizes are those of much else."""
MIN_OP_NS = 10_000
"""An operator shorter than this is mostly its call, which takes as long for fewer positions."""
_RECURRENT = ("rnn", "lstm", "gru")


def rows(padded: Sequence[Mapping[str, Any]], ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `padding`.

    Args:
        padded: rows of `padded_inputs`.
        ops: the table `ops`.
        kernels: the table `kernels`; None when no device was watched.
    """
    of_shape: dict[tuple[int, int, int], list[Mapping[str, Any]]] = {}
    for row in padded:
        if row["step"] is not None and row["rows"] and row["width"] >= MIN_WIDTH:
            of_shape.setdefault((row["step"], row["rows"], row["width"]), []).append(row)
    if not of_shape:
        return frame("padding", [])
    time, step = _time(ops, kernels), frames.integers(ops, "step")
    layers = _layers(ops)
    made = []
    for (number, count, width), seen in of_shape.items():
        over = _over(ops, count, width) & (step == number)
        first = seen[0]
        row = {name: first[name] for name in ("step", "rows", "width", "source", "module", "file", "line", "function")}
        row["padded_ratio"] = sum(one["padded"] for one in seen) / (len(seen) * count * width)
        row["shortest"] = min(one["shortest"] for one in seen)
        row["longest"] = max(one["longest"] for one in seen)
        row["over_ns"] = int(time[over].sum())
        row["layers"] = int(np.count_nonzero(over & layers))
        made.append(row)
    return frame("padding", made)


def _time(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> Ints:
    """What each operator takes itself, without the calls inside it."""
    if kernels is not None:
        return op_costs.launched(ops, kernels)[0]
    own = np.maximum(frames.integers(ops, "self_ns"), 0)
    return np.where(own >= MIN_OP_NS, own, 0)


def _layers(ops: pd.DataFrame) -> NDArray[np.bool_]:
    """Operators with weights or attention: what a layer is made of. Only those make padding expensive."""
    names = frames.texts(ops, "name")
    recurrent = np.array([*(any(kind in name for kind in _RECURRENT) for name in names.values), False], np.bool_)
    return frames.is_one_of(ops, "op_class", "gemm", "convolution", "attention") | recurrent[names.codes]


def _over(ops: pd.DataFrame, count: int, width: int) -> NDArray[np.bool_]:
    """Which operators run over the positions: by their inputs, their caller's, or their forward operator's."""
    texts = frames.texts(ops, "shapes")
    fits = np.array([*(_fits(text, count, width) for text in texts.values), False], np.bool_)
    over = fits[texts.codes] & ~frames.is_one_of(ops, "phase", "optimizer")
    ids = frames.integers(ops, "op")
    above = [frames.rows_of(ids, frames.integers(ops, column)) for column in ("parent", "forward_op")]
    depth = frames.integers(ops, "depth")
    for parent in above[:1] * int(depth.max(initial=0)):
        over |= frames.pick(over, parent, False)
    over |= frames.pick(over, above[1], False)
    return over


def _fits(shapes: str, count: int, width: int) -> bool:
    """Whether an operator with these inputs runs over `count` × `width` positions.

    Weights come behind the input, so only the first input may have the two sizes as dimensions of their own.
    """
    try:
        inputs = [shape for shape in json.loads(shapes) if shape and all(isinstance(size, int) for size in shape)]
    except (TypeError, ValueError):
        return False
    if any(count * width in shape for shape in inputs):
        return True
    first = inputs[0] if inputs else []
    if len(first) < 3:
        return False
    return (first[0] % count == 0 and width in first[1:]) or first[:2] == [width, count]
