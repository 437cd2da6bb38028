"""How long the device ran dry at each graph break: column `idle_ns` of `graph_breaks`.

Between the end of one compiled region and the begin of the one that goes on after the break, the host runs Python. The
device idles from the moment it has nothing left to do until the first kernel of the next region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gpudoctor.analysis import compile_chain

Row = dict[str, Any]
Window = tuple[int, int]


def per_step(
    compilations: Sequence[Row], breaks: Sequence[Row], ops: pd.DataFrame, gaps: pd.DataFrame
) -> dict[tuple[int, Any, Any], int]:
    """Mean idle time in nanoseconds a step by (frame, file, line) of the break, on the device that waits longest.

    Breaks that were not passed in a profiled step are not in it.

    Args:
        compilations: rows of `compilations`.
        breaks: rows of `graph_breaks`.
        ops: the table `ops`.
        gaps: the table `gaps`.
    """
    chain = compile_chain.graph(compilations, breaks)
    edges = {(a, b): (edge["file"], edge["line"]) for a, b, edge in chain.edges(data=True) if a != b}
    steps = max(1, ops["step"].nunique())
    windows = [(frames, window) for frames, window in _between(ops) if frames in edges]
    idle: dict[tuple[int, Any, Any], int] = {}
    for _, own in gaps.groupby("device"):
        spans = _joined(own)
        here: dict[tuple[int, Any, Any], int] = {}
        for frames, window in windows:
            key = (frames[0], *edges[frames])
            here[key] = here.get(key, 0) + _overlap(spans, window)
        idle |= {key: max(total // steps, idle.get(key, 0)) for key, total in here.items()}
    return idle


def _joined(gaps: pd.DataFrame) -> list[Window]:
    """Idle stretches: gaps are cut where what the host does changes."""
    made: list[Window] = []
    for start, took in gaps.sort_values("start_ns")[["start_ns", "dur_ns"]].itertuples(index=False):
        begin = made.pop()[0] if made and made[-1][1] >= start else int(start)
        made.append((begin, int(start + took)))
    return made


def _between(ops: pd.DataFrame) -> list[tuple[tuple[int, int], Window]]:
    """Neighbouring compiled regions of a thread: their frames, and the end of one and the begin of the next."""
    inside = ops[ops["region"].notna() & ops["phase"].ne("backward")]
    found = []
    for _, thread in inside.sort_values("start_ns").groupby(["thread", "step"], sort=False):
        last: tuple[str, int] | None = None
        for region, start, took in zip(thread["region"], thread["start_ns"], thread["dur_ns"], strict=True):
            if last is not None and region != last[0]:
                found.append(((_frame(last[0]), _frame(region)), (last[1], int(start))))
            end = int(start + took)
            last = (region, end if last is None or last[0] != region else max(end, last[1]))
    return found


def _frame(compile_id: str) -> int:
    return int(compile_id.partition("/")[0])


def _overlap(gaps: Sequence[Window], window: Window) -> int:
    """Idle time from the end of a region on, in gaps that began before the next one did."""
    begin, end = window
    return sum(int(stop - max(start, begin)) for start, stop in gaps if start < end and stop > begin)


def with_idle(breaks: pd.DataFrame, idle: Mapping[tuple[int, Any, Any], int]) -> pd.DataFrame:
    """`graph_breaks` with its column filled; null where the break was not passed in a profiled step."""
    keys = zip(breaks["frame"], breaks["file"], breaks["line"], strict=True)
    values = [None if pd.isna(line) else idle.get((int(frame), file, int(line))) for frame, file, line in keys]
    return breaks.assign(idle_ns=pd.array(values, dtype="Int64"))
