"""Tables `backward_calls`, `scalers` and `scaler_steps` from the watch log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.ingest.steps import step_at
from gpudoctor.ingest.watch import WatchLog

Row = dict[str, Any]


def backward_calls(log: WatchLog, step_rows: Sequence[Row]) -> list[Row]:
    """One row a backward call, with autocast's dtype where it was called under autocast."""
    return [
        {
            "step": _step(step_rows, call.start_ns),
            "start_ns": call.start_ns,
            "dur_ns": call.end_ns - call.start_ns,
            **(call.autocast or {}),
        }
        for call in log.backwards
    ]


def steps(log: WatchLog, step_rows: Sequence[Row]) -> list[Row]:
    """One row a step through a scaler, with the scale that it had.

    A scaler whose steps are all taken for skipped drives a compiled optimizer, whose hooks nobody sees: nothing is said
    of its steps.
    """
    scalers = {row["scaler"]: row for row in log.scalers}
    taken: dict[int, list[Row]] = defaultdict(list)
    for one in log.scaler_steps:
        number = len(taken[one.scaler])
        row = {"scaler": one.scaler, "number": number, "step": _step(step_rows, one.start_ns), "skipped": one.skipped}
        taken[one.scaler].append(row)
    made: list[Row] = []
    for scaler, rows in taken.items():
        if not all(row["skipped"] for row in rows):
            made += _with_scale(scalers.get(scaler, {}), rows)
    return made


def _with_scale(scaler: Mapping[str, Any], rows: list[Row]) -> list[Row]:
    """What `torch.amp.GradScaler.update` makes of the scale, step by step."""
    scale, growth, backoff, interval = (
        scaler.get(name) for name in ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
    )
    if scale is None or growth is None or backoff is None or interval is None:
        return rows
    good = 0
    for row in rows:
        row["scale"] = float(scale)
        good = 0 if row["skipped"] else good + 1
        row["grew"] = good == interval
        if row["skipped"]:
            scale *= backoff
        elif row["grew"]:
            scale, good = scale * growth, 0
    return rows


def _step(step_rows: Sequence[Row], time_ns: int) -> int | None:
    return step_at(step_rows, time_ns) if step_rows else None
