"""Where the steps of a bare trace are: its ProfilerStep ranges, else the user's own, else optimizer steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded
from gpudoctor.ingest.kineto import Table, Trace
from gpudoctor.ingest.ops import OPTIMIZER_RANGE, STEP_MARK, Ops, Window

_ANNOTATED = re.compile(
    r"\b(?:train(?:ing)?|inference|eval)?[_ ]?(?:step|iter(?:ation)?)s?\b[ _#:=]*\d*\W*$", re.IGNORECASE
)
"""Ranges that people put around a step of theirs."""

PROFILER_STEP = "ProfilerStep"
_MIN_STEPS = 2  # one range or one optimizer step cuts nothing

_ROUNDING_NS = 1_000  # by which a step's end can lie behind the next one's begin: traces round both

Ints = NDArray[np.int64]


def windows(trace: Trace) -> tuple[list[Window], str]:
    """The steps in order, and what marked them: ProfilerStep, annotation, optimizer or window."""
    ops, texts = trace.table("ops"), trace.texts("name")
    codes = np.unique(ops["name"]).tolist() if len(ops) else []
    marked = {c: int(texts[c].removeprefix(STEP_MARK)) for c in codes if _is_mark(texts[c])}
    if marked:
        return _of_ranges(ops, list(marked), marked), PROFILER_STEP
    for names in _annotations(codes, texts):
        found = _of_ranges(ops, names, {})
        if len(found) >= _MIN_STEPS:
            return found, "annotation"
    steps = [c for c in codes if texts[c].startswith(OPTIMIZER_RANGE)]
    if steps and len(cut := _between_optimizer_steps(trace, ops, steps)) >= _MIN_STEPS:
        return cut, "optimizer"
    start, end = span(trace)
    return [Window(0, start, end)], "window"


def span(trace: Trace) -> tuple[int, int]:
    """First begin and last end of all activities and calls, in nanoseconds on the trace's clock."""
    tables = [t for group in ("ops", "runtime", "device", "python", "sync") if len(t := trace.table(group))]
    if not tables:
        return 0, 0
    start = min(int(table["start_ns"].min()) for table in tables)
    return start, max(int((table["start_ns"] + np.maximum(table["dur_ns"], 0)).max()) for table in tables)


def _is_mark(name: str) -> bool:
    return name.startswith(STEP_MARK) and name.removeprefix(STEP_MARK).isdigit()


def _annotations(codes: Sequence[int], texts: Sequence[str]) -> list[list[int]]:
    """Groups of names that mark the same thing, `step 1`, `step 2`, …"""
    groups: dict[str, list[int]] = {}
    for code in codes:
        name = texts[code]
        # an optimizer's range ends a step, it is none
        if "::" not in name and not name.startswith("Optimizer.") and _ANNOTATED.search(name):
            groups.setdefault(name.rstrip("0123456789 #:=_"), []).append(code)
    return list(groups.values())


def _of_ranges(ops: Table, codes: Sequence[int], numbers: Mapping[int, int]) -> list[Window]:
    rows = np.flatnonzero(np.isin(ops["name"], codes))
    rows = rows[np.argsort(ops["start_ns"][rows], kind="stable")]
    made: list[Window] = []
    for row in rows.tolist():
        start = int(ops["start_ns"][row])
        end = start + max(int(ops["dur_ns"][row]), 0)
        if made and start < made[-1].end_ns:
            if start < made[-1].end_ns - _ROUNDING_NS or end <= made[-1].end_ns:
                continue  # inside the one before, or on another thread at the same time
            start = made[-1].end_ns
        number = numbers.get(int(ops["name"][row]), len(made))
        made.append(Window(number, start, end))
    return made


def _between_optimizer_steps(trace: Trace, ops: Table, codes: Sequence[int]) -> list[Window]:
    """From the end of one optimizer step to the end of the next; what comes before the first is its step."""
    rows = np.flatnonzero(np.isin(ops["name"], codes))
    ends = np.sort(ops["start_ns"][rows] + np.maximum(ops["dur_ns"][rows], 0)).tolist()
    begins = [span(trace)[0], *ends[:-1]]
    return [Window(number, start, end) for number, (start, end) in enumerate(zip(begins, ends, strict=True))]


def rows(cut: Sequence[Window], source: str, observation: str, offset_ns: int, ops: Ops) -> list[dict[str, Any]]:
    """Rows of `steps`."""
    shares = {name: _covered(cut, ops, phase) for name, phase in _PHASES.items()} if len(ops) else {}
    return [
        {
            "step": window.step,
            "start_ns": window.start_ns + offset_ns,
            "dur_ns": window.end_ns - window.start_ns,
            "observation": observation,
            "warmup": False,
            "source": source,
            **{name: int(covered[at]) for name, covered in shares.items()},
        }
        for at, window in enumerate(cut)
    ]


_PHASES = {"input_ns": "input", "backward_ns": "backward", "optimizer_ns": "optimizer"}


def _covered(cut: Sequence[Window], ops: Ops, phase: str) -> Ints:
    """Nanoseconds of each step in which some operator of a phase ran."""
    phases = ops.columns["phase"]
    step, start, dur = (ops.columns[name] for name in ("step", "start_ns", "dur_ns"))
    assert isinstance(phases, Coded)
    assert isinstance(step, np.ndarray)
    assert isinstance(start, np.ndarray)
    assert isinstance(dur, np.ndarray)
    wanted = [code for code, text in enumerate(phases.values) if text == phase]
    rows = np.flatnonzero(np.isin(phases.codes, wanted) & (step != MISSING))
    made = []
    for window in cut:
        mine = rows[step[rows] == window.step]
        begins, ends = start[mine], start[mine] + dur[mine]
        reached = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], ends)))[:-1]
        made.append(int(np.maximum(ends - np.maximum(begins, reached), 0).sum()))
    return np.array(made, np.int64)
