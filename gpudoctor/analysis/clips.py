"""Calls of torch's gradient clipping, and whether a gradient scaler had unscaled the gradients by then."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.profile import frame

CLIP_FUNCTIONS = (
    "clip_grad_norm_",
    "clip_grad_value_",
    "_get_total_norm",
    "get_total_norm",
    "_clip_grads_with_norm_",
    "clip_grads_with_norm_",
)
"""Functions of torch/nn/utils/clip_grad.py, which call one another (2.6 split the first into the last four)."""

UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
"""What `GradScaler.unscale_` runs, and `GradScaler.step` where nobody called that before."""


def rows(ops: pd.DataFrame) -> pd.DataFrame:
    """The table `clips`.

    Args:
        ops: the table `ops`; only operators with a Python caller (detail steps) can be told.
    """
    start, step = frames.integers(ops, "start_ns"), frames.integers(ops, "step")
    thread = frames.integers(ops, "thread")
    clipping = np.flatnonzero(frames.is_one_of(ops, "caller_function", *CLIP_FUNCTIONS) & _in_clip_grad(ops))
    unscaled = start[frames.is_one_of(ops, "name", UNSCALE)]
    backward = start[frames.is_one_of(ops, "phase", "backward")]
    marks = np.sort(np.concatenate((unscaled, backward))).tolist()
    known, passes = np.sort(unscaled).tolist(), np.sort(backward).tolist()
    files, functions = frames.texts(ops, "file"), frames.texts(ops, "function")
    lines, ids = frames.integers(ops, "line"), frames.integers(ops, "op")
    made: list[dict[str, Any]] = []
    calls: set[tuple[int, ...]] = set()
    for row in clipping[np.argsort(start[clipping], kind="stable")].tolist():
        at = int(start[row])
        # the operators of one call have nothing of backward or the scaler between them
        call = (int(step[row]), int(thread[row]), int(files.codes[row]), int(lines[row]), bisect_right(marks, at))
        if call in calls:
            continue
        calls.add(call)
        made.append(
            {
                "op": int(ids[row]),
                "step": int(step[row]) if step[row] >= 0 else None,
                "file": _text(files, row),
                "line": int(lines[row]) if lines[row] >= 0 else None,
                "function": _text(functions, row),
                "unscaled": _unscaled(at, known, passes),
            }
        )
    return frame("clips", made)


def _in_clip_grad(ops: pd.DataFrame) -> Any:
    files = frames.texts(ops, "caller_file")
    hit = np.array([*(text.endswith("clip_grad.py") for text in files.values), False], np.bool_)
    return hit[files.codes]


def _unscaled(at: int, unscaled: list[int], backward: list[int]) -> bool | None:
    """Whether gradients were unscaled between the last backward operator and now; None when they are not scaled."""
    last = bisect_left(backward, at)
    since = backward[last - 1] if last else -1
    until = backward[last] if last < len(backward) else None
    before = bisect_left(unscaled, at)
    if before and unscaled[before - 1] > since:
        return True
    if before < len(unscaled) and (until is None or unscaled[before] < until):
        return False
    return None


def _text(coded: Any, row: int) -> str | None:
    code = coded.codes[row]
    return coded.values[code] if code >= 0 else None
