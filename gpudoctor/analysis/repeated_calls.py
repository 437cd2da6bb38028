"""Calls of a module in a profiled step whose result another call with the very same inputs has, or nearly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.profile import frame

_USED = ("used", "partly")

Call = dict[str, Any]


def rows(calls: Sequence[Call], ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `repeated_calls`.

    A call whose graph backward ran is needed, and its result serves all others. Where there is none, the first call is
    needed. Two whose graphs were both run repeat each other only when they must be equal: same weights, no random
    numbers. Across two steps only a call without backward counts that follows the training call of the step before.

    Args:
        calls: rows of `module_calls`.
        ops: the table `ops`.
        kernels: the table `kernels`; None when no device was watched.
    """
    inside = _Inside(ops, kernels)
    groups: dict[int, list[Call]] = {}
    for call in calls:
        if call["step"] is not None and call["line"] is not None:
            key: int = call["call"] if pd.isna(call["repeats"]) else int(call["repeats"])
            groups.setdefault(key, []).append(call)
    made = []
    for group in groups.values():
        if len(group) > 1:
            for call, other in _pairs(group):
                made.append(
                    {
                        **{name: call[name] for name in ("call", "step", "file", "line", "function", "module", "grad")},
                        "other_file": other["file"],
                        "other_line": other["line"],
                        "graph": call["graph"],
                        "updated": call["weights"] != other["weights"],
                        "random": _random(call),
                        "after_backward": other["step"] < call["step"] or inside.after_backward(call),
                        "dur_ns": inside.ns(call),
                    }
                )
    return frame("repeated_calls", made)


def _pairs(group: Sequence[Call]) -> list[tuple[Call, Call]]:
    """Needless calls of one module with one input, each with the call whose result would do."""
    found = []
    for call in group:
        if call["graph"] == "open":
            continue
        others = [other for other in group if other is not call and other["training"] == call["training"]]
        same = [other for other in others if other["step"] == call["step"]]
        if call["graph"] in _USED:
            equal = [one for one in same if one["weights"] == call["weights"] and one["call"] < call["call"]]
            used = next((one for one in equal if one["graph"] in _USED), None)
            if used is not None and not _random(call):
                found.append((call, used))
            continue
        used = next((one for one in same if one["graph"] in _USED), None) or next(
            (one for one in others if one["graph"] in _USED and one["step"] == call["step"] - 1), None
        )
        if used is None and not _random(call):
            used = next((one for one in same if one["call"] < call["call"] and one["weights"] == call["weights"]), None)
        if used is not None:
            found.append((call, used))
    return found


def _random(call: Call) -> bool:
    return pd.isna(call["random"]) or bool(call["random"])


class _Inside:
    """Looks up what ran in a call."""

    def __init__(self, ops: pd.DataFrame, kernels: pd.DataFrame | None) -> None:
        start, steps = frames.integers(ops, "start_ns"), frames.integers(ops, "step")
        self._kernels = kernels
        if kernels is not None:
            at = frames.rows_of(frames.integers(ops, "op"), frames.integers(kernels, "op"))
            self._kernel_ns = frames.integers(kernels, "dur_ns")[at >= 0]
            self._launched = start[at[at >= 0]]
        backward = frames.is_one_of(ops, "phase", "backward")
        self._last = {int(step): int(start[backward & (steps == step)].max()) for step in np.unique(steps[backward])}

    def ns(self, call: Call) -> int:
        """Time of the kernels that the call launched, without a device its own."""
        if self._kernels is None:
            return int(call["dur_ns"])
        start = call["start_ns"]
        return int(self._kernel_ns[(self._launched >= start) & (self._launched < start + call["dur_ns"])].sum())

    def after_backward(self, call: Call) -> bool:
        """Whether the call ran behind all backward work of its step."""
        last = self._last.get(int(call["step"]))
        return last is not None and call["start_ns"] > last
