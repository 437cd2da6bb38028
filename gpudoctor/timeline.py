"""The median profiled step as it ran, packed for the report: threads, streams, phases, idle time, memory."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpudoctor.diagnosis import Lane, Timeline
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

MOST_EVENTS = 100_000
"""Events drawn: more make the file larger than 2 MB, and the shortest of them are below a pixel at any useful zoom."""

MOST_ROWS = 16
"""Depth of nesting that is drawn; deeper operators stand inside ones that are."""

_READINGS = 600
_SPAN = (1 << 32) - 1
_LEVEL = 6  # zlib's own default: 9 takes three times as long for 2 % less

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Part:
    """The events of one lane, in no order; texts and places may be None."""

    name: str
    kind: Literal["phases", "thread", "stream", "idle"]
    start: Integers
    length: Integers
    row: Integers
    names: Sequence[Any]
    kinds: Sequence[Any]
    files: Sequence[Any]
    lines: Sequence[Any]


def timeline(profile: Profile) -> Timeline | None:
    """The step that the budget and the critical path show; None when no profiled step was seen."""
    window = _window(profile)
    if window is None:
        return None
    step, begin, length = window
    parts = [*_threads(profile, step, begin), *_streams(profile, begin, length), *_idle(profile, step, begin)]
    if not parts:
        return None
    return _packed(step, length, parts, _memory(profile, step, begin))


def _window(profile: Profile) -> tuple[int, int, int] | None:
    """Number, begin and time of the step."""
    steps = profile.table("steps")
    if (detailed := _detailed(profile)) is not None:
        return detailed
    for name in ("critical_path", "step_budget"):
        table = profile.table(name)
        if table.empty:
            continue
        totals = table.groupby("step")["dur_ns"].sum().sort_values()
        number = int(totals.index[(len(totals) - 1) // 2])
        row = steps[steps["step"].eq(number)]
        if len(row):
            first = row.iloc[0]
            return number, int(first["start_ns"]), int(max(first["dur_ns"], 1))
    return None


def _detailed(profile: Profile) -> tuple[int, int, int] | None:
    """A step with exact lines, where the others have none: on a CPU only a detailed profile knows who called what."""
    ops, steps = profile.table("ops"), profile.table("steps")
    if profile.measured("kernels") or ops.empty or ops["file"].isna().all():
        return None
    known = set(ops.loc[ops["file"].notna(), "step"].dropna().tolist())
    rows = steps[steps["step"].isin(known)].sort_values("dur_ns")
    if rows.empty:
        return None
    row = rows.iloc[(len(rows) - 1) // 2]
    return int(row["step"]), int(row["start_ns"]), int(max(row["dur_ns"], 1))


def _threads(profile: Profile, step: int, begin: int) -> Iterable[_Part]:
    ops = profile.table("ops")
    ops = ops[ops["step"].eq(step).fillna(False).to_numpy(bool)]
    if ops.empty:
        return
    order = ops.groupby("thread", observed=True)["dur_ns"].sum().sort_values(ascending=False).index.tolist()
    main = int(ops.iloc[ops["start_ns"].to_numpy().argmin()]["thread"])
    order.sort(key=lambda thread: thread != main)
    for place, thread in enumerate(order):
        mine = ops[ops["thread"].eq(thread)]
        depth = mine["depth"].fillna(0).to_numpy(np.int64)
        depth = np.minimum(depth - depth.min(), MOST_ROWS - 1)
        name = "main thread" if thread == main else f"thread {place + 1}"
        if place == 0 and (phases := _phases(ops, begin)) is not None:
            yield phases
        yield _Part(
            name,
            "thread",
            mine["start_ns"].to_numpy(np.int64) - begin,
            mine["dur_ns"].fillna(0).to_numpy(np.int64),
            depth,
            mine["name"].tolist(),
            mine["phase"].tolist(),
            mine["file"].tolist(),
            mine["line"].tolist(),
        )


def _phases(ops: pd.DataFrame, begin: int) -> _Part | None:
    """Stretches in which the outermost operators belong to one phase; backward runs on a thread of its own."""
    least = ops.groupby("thread", observed=True)["depth"].transform("min")
    outer = ops[ops["depth"].eq(least) & ops["phase"].notna()].sort_values("start_ns")
    if outer.empty:
        return None
    start = outer["start_ns"].to_numpy(np.int64)
    end = start + outer["dur_ns"].fillna(0).to_numpy(np.int64)
    phase = outer["phase"].astype(str).to_numpy()
    first = np.flatnonzero(np.r_[True, phase[1:] != phase[:-1]])
    last = np.r_[first[1:] - 1, len(phase) - 1]
    names = phase[first].tolist()
    nothing: list[None] = [None] * len(names)
    return _Part("phases", "phases", start[first] - begin, end[last] - start[first], np.zeros(len(first), np.int64),
                 names, names, nothing, nothing)  # fmt: skip


def _streams(profile: Profile, begin: int, length: int) -> Iterable[_Part]:
    """Kernels, copies and fills that overlap the step, by device and stream."""
    kernels = profile.table("kernels")
    if kernels.empty:
        return
    start, took = kernels["start_ns"].to_numpy(np.int64), kernels["dur_ns"].fillna(0).to_numpy(np.int64)
    inside = kernels[(start < begin + length) & (start + took > begin)]
    several = inside["device"].nunique() > 1
    for (device, stream), mine in inside.groupby(["device", "stream"], observed=True):
        kinds = mine["kernel_class"].astype(object).where(mine["kind"].astype(str).eq("kernel"), mine["kind"])
        yield _Part(
            f"GPU {device} stream {stream}" if several else f"stream {stream}",
            "stream",
            mine["start_ns"].to_numpy(np.int64) - begin,
            mine["dur_ns"].fillna(0).to_numpy(np.int64),
            np.zeros(len(mine), np.int64),
            mine["name"].tolist(),
            kinds.tolist(),
            mine["file"].tolist(),
            mine["line"].tolist(),
        )


def _idle(profile: Profile, step: int, begin: int) -> Iterable[_Part]:
    gaps = profile.table("gaps")
    gaps = gaps[gaps["step"].eq(step).fillna(False).to_numpy(bool)]
    several = gaps["device"].nunique() > 1
    for device, mine in gaps.groupby("device", observed=True):
        owners = mine["owner"].astype(str).tolist()
        yield _Part(
            f"GPU {device} idle" if several else "GPU idle",
            "idle",
            mine["start_ns"].to_numpy(np.int64) - begin,
            mine["dur_ns"].fillna(0).to_numpy(np.int64),
            np.zeros(len(mine), np.int64),
            [f"idle: {owner}" for owner in owners],
            owners,
            mine["file"].tolist(),
            mine["line"].tolist(),
        )


def _memory(profile: Profile, step: int, begin: int) -> list[tuple[int, int]]:
    """Nanoseconds from the step's begin and bytes in use on the device, or on the CPU where no device was used."""
    events = profile.table("memory_events")
    events = events[events["step"].eq(step).fillna(False).to_numpy(bool)]
    kind = "gpu" if events["device_kind"].astype(str).eq("gpu").any() else "cpu"
    events = events[events["device_kind"].astype(str).eq(kind) & events["allocated_bytes"].notna()]
    if kind == "gpu" and not events.empty:
        events = events[events["device"].eq(events["device"].min())]
    events = events.sort_values("start_ns")
    times = (events["start_ns"].to_numpy(np.int64) - begin).tolist()
    levels = events["allocated_bytes"].to_numpy(np.int64).tolist()
    stride = -(-len(levels) // _READINGS) or 1
    return [(times[at], max(levels[at : at + stride])) for at in range(0, len(levels), stride)]


def _packed(step: int, length: int, parts: Sequence[_Part], memory: Sequence[tuple[int, int]]) -> Timeline:
    lanes = np.concatenate([np.full(len(part.start), number) for number, part in enumerate(parts)])
    start = np.concatenate([part.start for part in parts])
    took = np.concatenate([part.length for part in parts])
    row = np.concatenate([part.row for part in parts])
    names, name = _numbered([str(one) for part in parts for one in part.names])
    kinds, kind = _numbered([_text(one) for part in parts for one in part.kinds])
    at = [_place(*pair) for part in parts for pair in zip(part.files, part.lines, strict=True)]
    places, place = _numbered(at, first="")
    kept = np.lexsort((start, row, lanes))
    if len(kept) > MOST_EVENTS:
        longest = np.zeros(len(start), bool)
        longest[np.argsort(-took, kind="stable")[:MOST_EVENTS]] = True
        kept = kept[longest[kept]]
    unit = max(1, -(-int((start + took).max(initial=length)) // _SPAN))
    columns = [
        np.maximum(start[kept], 0) // unit,
        (np.maximum(start[kept] + took[kept], 0) - np.maximum(start[kept], 0)) // unit,
        name[kept],
        place[kept],
    ]
    packed = b"".join(column.astype("<u4").tobytes() for column in columns)
    packed += b"".join(column[kept].astype("u1").tobytes() for column in (lanes, row, np.minimum(kind, 255)))
    return Timeline(
        step=step,
        step_ns=length,
        unit_ns=unit,
        lanes=tuple(Lane(part.name, part.kind, int(part.row.max(initial=0)) + 1) for part in parts),
        names=tuple(names),
        kinds=tuple(kinds),
        places=tuple(places[1:]),
        events=len(kept),
        left_out=len(start) - len(kept),
        columns=base64.b64encode(zlib.compress(packed, _LEVEL)).decode(),
        memory=tuple((max(0, time) // unit, level) for time, level in memory),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "other"


def _place(file: Any, line: Any) -> str:
    return f"{file}:{int(line)}" if isinstance(file, str) and isinstance(line, int | np.integer) else ""


def _numbered(texts: Sequence[str], first: str | None = None) -> tuple[list[str], Integers]:
    """The different texts in order of appearance, `first` before all, and each text's number."""
    known: dict[str, int] = {first: 0} if first is not None else {}
    codes = [known.setdefault(text, len(known)) for text in texts]
    return list(known), np.array(codes, np.int64)
