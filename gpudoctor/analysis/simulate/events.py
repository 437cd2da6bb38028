"""What a replay reads of a Profile, as arrays: device activities, runtime calls, outermost operators, steps.

Times are nanoseconds from the recording's zero, as float64: exact below 2^53, and the replay's sums stay in one type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NONE = -1
"""No row, no call, no stream."""

KINDS = ("kernel", "memcpy", "memset")

ROUNDING_NS = 1_000.0
"""By how much a begin and an end may contradict each other: traces of old torch round times to microseconds."""

LOADER = "enumerate(DataLoader)#"
"""How the range begins in which a loop waits for its next batch (torch/utils/data/dataloader.py)."""

_WORKERS = LOADER + "_MultiProcessing"

_BACKWARD = re.compile(r"Backward|autograd::engine|torch::autograd")
"""Names of operators that the autograd engine runs."""


@dataclass(frozen=True, slots=True)
class Activities:
    """Device activities by begin.

    Attributes:
        id: ids in `kernels`.
        start: begin.
        end: end.
        device: GPU index.
        stream: stream id.
        lane: number of the pair (device, stream).
        call: row in `Calls` of the launch; `NONE` when it was not recorded.
        kind: number in `KINDS`.
        pageable: a copy whose host side is pageable memory.
        direction: number of a copy's direction, 0 where it has none.
        communication: a collective.
        node: place among the activities of one graph launch; 0 for all others.
        names: kernel names.
    """

    id: Ints
    start: Floats
    end: Floats
    device: Ints
    stream: Ints
    lane: Ints
    call: Ints
    kind: Ints
    pageable: Bools
    direction: Ints
    communication: Bools
    node: Ints
    names: list[str]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Calls:
    """Runtime calls by begin, an enclosing one first.

    Attributes:
        id: ids in `runtime_calls`.
        start: begin.
        end: end.
        thread: thread id.
        correlation: correlation id; `NONE` without one.
        name: number in `texts`.
        texts: names of calls.
        op: op id of the innermost operator around it; `NONE` without one.
    """

    id: Ints
    start: Floats
    end: Floats
    thread: Ints
    correlation: Ints
    name: Ints
    texts: list[str]
    op: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Outermost operators and the loop's waits for batches.

    Attributes:
        thread: thread id.
        start: begin.
        end: end.
        engine: the autograd engine runs it.
        fed: a wait for a batch that a worker process makes.
    """

    thread: Ints
    start: Floats
    end: Floats
    engine: Bools
    fed: Bools


@dataclass(frozen=True, slots=True)
class Waits:
    """What the device's record says of synchronisations, by correlation id: (stream, waited stream, record id)."""

    by_correlation: dict[int, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Events:
    """All of it.

    Attributes:
        activities: see there; empty without a device.
        calls: see there.
        ranges: see there.
        waits: see there.
        step: numbers of the profiled steps, in order of time.
        step_start: their begins.
        step_end: their ends.
        cuts: where each stretch of profiled steps that follow each other begins.
        main: thread of the training loop.
        autograd: threads that run the backward pass beside it.
    """

    activities: Activities
    calls: Calls
    ranges: Ranges
    waits: Waits
    step: Ints
    step_start: Floats
    step_end: Floats
    cuts: Floats
    main: int
    autograd: tuple[int, ...]

    @property
    def stretch_start(self) -> Floats:
        """Begin of the first step of each stretch."""
        return self.step_start[np.unique(self.stretch(self.step_start), return_index=True)[1]]

    def stretch(self, time: Floats) -> Ints:
        """Number of the stretch that each time lies in; what lies before the first belongs to it."""
        return np.maximum(np.searchsorted(self.cuts, time, side="right") - 1, 0)


def read(profile: Profile) -> Events | None:
    """The events of a Profile; None when no step was profiled."""
    ops, kernels = profile.table("ops"), profile.table("kernels")
    steps = _profiled(profile.table("steps"), ops, kernels)
    if steps.empty:
        return None
    calls = _calls(profile.table("runtime_calls"))
    activities = _activities(kernels, calls)
    number, start = _ints(steps["step"]), _floats(steps["start_ns"])
    order = np.argsort(start, kind="stable")
    number, start, end = number[order], start[order], (start + _floats(steps["dur_ns"]))[order]
    breaks = np.flatnonzero(np.diff(number) != 1)
    begun = np.sort(np.concatenate((calls.start, calls.end, activities.start, activities.end)))
    cuts = [float(start[0]), *(_quiet(begun, float(end[row]), float(start[row + 1])) for row in breaks.tolist())]
    ranges = _outermost(ops)
    main, autograd = _threads(ranges, calls, activities)
    return Events(
        activities,
        calls,
        ranges,
        _waits(profile.table("stream_waits")),
        number,
        start,
        end,
        np.array(cuts),
        main,
        autograd,
    )


def _quiet(times: Floats, since: float, until: float) -> float:
    """The middle of the longest time in which nothing was recorded: between two stretches the profiler was off."""
    inside = np.concatenate(([since], times[(times > since) & (times < until)], [until]))
    at = int(np.argmax(np.diff(inside)))
    return float(inside[at] + inside[at + 1]) / 2


def _profiled(steps: pd.DataFrame, ops: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    seen = set(ops["step"].dropna().unique()) if len(ops) else set()
    if len(kernels):
        seen |= set(kernels["launch_step"].dropna().unique()) | set(kernels["step"].dropna().unique())
    return steps[steps["step"].isin(seen)]


def _ints(column: Any) -> Ints:
    return np.asarray(column.fillna(NONE).to_numpy(dtype=np.int64, na_value=NONE), np.int64)


def _floats(column: Any) -> Floats:
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=0.0), np.float64)


def _bools(column: Any) -> Bools:
    return np.asarray(column.to_numpy(dtype=bool, na_value=False), bool)


def _texts(column: Any) -> tuple[Ints, list[str]]:
    """Codes and texts of a text column; null becomes an empty text."""
    codes, texts = column.astype(object).where(column.notna(), "").factorize()
    return np.asarray(codes, np.int64), [str(text) for text in texts]


def _calls(table: pd.DataFrame) -> Calls:
    table = table[~table["name"].eq("INVALID").fillna(False).to_numpy(dtype=bool)] if len(table) else table
    start = _floats(table["start_ns"])
    end = start + np.maximum(_floats(table["dur_ns"]), 0.0)
    order = np.lexsort((-end, start))
    name, texts = _texts(table["name"])
    columns = (_ints(table[key])[order] for key in ("call", "thread", "correlation", "op"))
    identity, thread, correlation, op = columns
    return Calls(identity, start[order], end[order], thread, correlation, name[order], texts, op)


def _activities(table: pd.DataFrame, calls: Calls) -> Activities:
    start = _floats(table["start_ns"])
    end = start + np.maximum(_floats(table["dur_ns"]), 0.0)
    order = np.lexsort((end, start))
    device, stream = _ints(table["device"])[order], _ints(table["stream"])[order]
    lane = np.unique(device * (1 << 32) + stream, return_inverse=True)[1].reshape(-1).astype(np.int64)
    call = _rows(_ints(table["call"])[order], calls.id)
    kind, kinds = _texts(table["kind"])
    known = np.array([KINDS.index(text) if text in KINDS else 0 for text in kinds] or [0], np.int64)
    classes, names = _texts(table["kernel_class"])
    talks = np.array([text == "communication" for text in names] or [False], bool)
    named, texts = _texts(table["name"])
    return Activities(
        id=_ints(table["kernel"])[order],
        start=start[order],
        end=end[order],
        device=device,
        stream=stream,
        lane=lane,
        call=call,
        kind=known[kind[order]],
        pageable=_bools(table["pageable"])[order],
        direction=_directions(table["direction"])[order],
        communication=talks[classes[order]],
        node=_nodes(call),
        names=[texts[code] for code in named[order].tolist()],
    )


def _directions(column: Any) -> Ints:
    codes, texts = _texts(column)
    return np.array([1 + number if text else 0 for number, text in enumerate(texts)] or [0], np.int64)[codes]


def _rows(ids: Ints, of: Ints) -> Ints:
    """Row of each id among some that need not be in order; `NONE` where there is none."""
    if not len(of):
        return np.full(len(ids), NONE, np.int64)
    order = np.argsort(of, kind="stable")
    at = np.clip(np.searchsorted(of[order], ids), 0, len(of) - 1)
    return np.where((of[order][at] == ids) & (ids >= 0), order[at], NONE)


def _nodes(call: Ints) -> Ints:
    """Place of each activity among those of its call, in order of begin."""
    order = np.argsort(call, kind="stable")
    grouped = call[order]
    first = np.concatenate(([True], grouped[1:] != grouped[:-1])) if len(grouped) else np.empty(0, bool)
    starts = np.flatnonzero(first)
    place = np.empty(len(call), np.int64)
    place[order] = np.arange(len(call)) - np.repeat(starts, np.diff(np.append(starts, len(call))))
    place[call == NONE] = 0
    return place


def _outermost(ops: pd.DataFrame) -> Ranges:
    """Operators that lie in no other one, and waits for batches.

    Other ranges that scripts and libraries name do not count: they can span a whole step, and then nothing could be
    told from where they begin and end.
    """
    codes, texts = _texts(ops["name"])
    real = _named(texts, lambda text: "::" in text or text.startswith(LOADER))[codes]
    engine = _named(texts, lambda text: bool(_BACKWARD.search(text)))[codes][real]
    fed = _named(texts, lambda text: text.startswith(_WORKERS))[codes][real]
    start = _floats(ops["start_ns"])[real]
    end = start + np.maximum(_floats(ops["dur_ns"])[real], 0.0)
    thread = _ints(ops["thread"])[real]
    order = np.lexsort((-end, start, thread))
    thread, start, end, engine, fed = thread[order], start[order], end[order], engine[order], fed[order]
    kept, last, reach = [], None, 0.0
    for row, (group, begin, until) in enumerate(zip(thread.tolist(), start.tolist(), end.tolist(), strict=True)):
        if group != last or (begin >= reach - ROUNDING_NS and until > reach):
            kept.append(row)
            last, reach = group, until
    return Ranges(thread[kept], start[kept], end[kept], engine[kept], fed[kept])


def _named(texts: Sequence[str], holds: Callable[[str], bool]) -> Bools:
    """By code of a name whether something holds for it."""
    return np.array([holds(text) for text in texts] or [False], bool)


def _waits(table: pd.DataFrame) -> Waits:
    columns = [_ints(table[key]).tolist() for key in ("correlation", "stream", "waits_for_stream", "waits_for_record")]
    return Waits({row[0]: (row[1], row[2], row[3]) for row in zip(*columns, strict=True)})


MIN_BACKWARD = (4, 0.02)
"""Outermost operators of the engine, and their share of a thread's, from which it is a thread of the engine."""

MIN_LAUNCHES = 0.1
"""Share of all launches from which a thread belongs to the training step."""


def _threads(ranges: Ranges, calls: Calls, activities: Activities) -> tuple[int, tuple[int, ...]]:
    """The thread of the training loop and those of the autograd engine.

    The loop's thread has most outermost operators that are not the engine's; without operators, most launches. On a
    CPU the engine runs on the loop's own thread.
    """
    launches = _counts(calls.thread[activities.call[activities.call != NONE]])
    total, backward = _counts(ranges.thread), _counts(ranges.thread[ranges.engine])
    candidates = _counts(ranges.thread[~ranges.engine]) or launches
    main = max(candidates, key=lambda key: candidates[key]) if candidates else 0
    least, share = MIN_BACKWARD
    found = {
        key
        for key in {*total, *launches} - {main}
        if backward.get(key, 0) >= max(least, share * total.get(key, 0))
        or launches.get(key, 0) >= max(1, MIN_LAUNCHES * sum(launches.values()))
    }
    return main, tuple(sorted(found))


def _counts(values: Ints) -> dict[int, int]:
    keys, counts = np.unique(values, return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))
