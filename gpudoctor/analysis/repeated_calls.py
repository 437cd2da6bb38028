"""Calls of a module in a profiled step that returned what another call with the very same inputs returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.profile import frame

_USED = ("used", "partly")

Call = dict[str, Any]


def rows(calls: Sequence[Call], ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `repeated_calls`.

    A call whose graph backward ran is needed, and its result serves all others of its step. Where there is none, the
    first call is needed. A line is silent altogether when one of its calls returned something else than the call that
    it repeats, or drew random numbers, or when one of these is not known.

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
    made: list[dict[str, Any]] = []
    differing: set[tuple[Any, Any]] = set()
    for group in groups.values():
        for call, other in _pairs(group):
            if not (_same_result(call) and _same_result(other)):
                differing.add((call["file"], call["line"]))
            made.append(
                {
                    **{name: call[name] for name in ("call", "step", "file", "line", "function", "module", "grad")},
                    "other_file": other["file"],
                    "other_line": other["line"],
                    "graph": call["graph"],
                    "dur_ns": inside.ns(call),
                }
            )
    return frame("repeated_calls", [row for row in made if (row["file"], row["line"]) not in differing])


def _pairs(group: Sequence[Call]) -> list[tuple[Call, Call]]:
    """Calls of one module with one input that may be needless, each with the call whose result would do."""
    found = []
    for call in group:
        if call["graph"] == "open":
            continue
        others = [
            other
            for other in group
            if other is not call and all(other[name] == call[name] for name in ("training", "step", "weights"))
        ]
        earlier = [other for other in others if other["call"] < call["call"]]
        used = [other for other in (earlier if call["graph"] in _USED else others) if other["graph"] in _USED]
        if used:
            found.append((call, used[0]))
        elif call["graph"] not in _USED and earlier:
            found.append((call, earlier[0]))
    return found


def _same_result(call: Call) -> bool:
    """Whether the call is known to have returned what the first one of its group did, without any random number."""
    if pd.isna(call["random"]) or call["random"]:
        return False
    return bool(pd.isna(call["repeats"]) or (not pd.isna(call["equal"]) and call["equal"]))


class _Inside:
    """Looks up what ran in a call."""

    def __init__(self, ops: pd.DataFrame, kernels: pd.DataFrame | None) -> None:
        start = frames.integers(ops, "start_ns")
        self._kernels = kernels
        if kernels is not None:
            at = frames.rows_of(frames.integers(ops, "op"), frames.integers(kernels, "op"))
            self._kernel_ns = frames.integers(kernels, "dur_ns")[at >= 0]
            self._launched = start[at[at >= 0]]

    def ns(self, call: Call) -> int:
        """Time of the kernels that the call launched, without a device its own."""
        if self._kernels is None:
            return int(call["dur_ns"])
        start = call["start_ns"]
        return int(self._kernel_ns[(self._launched >= start) & (self._launched < start + call["dur_ns"])].sum())
