"""Everything that is derived from the device's timeline: one call fills the tables that the loaders leave empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import device_budget, exposed, frames, host, kernel_runs, launch_queue, op_costs
from gpudoctor.analysis.device_budget import OWNERS, Activities, Pieces
from gpudoctor.analysis.frames import NULL
from gpudoctor.analysis.host import Events, Thread
from gpudoctor.analysis.intervals import Ints, merge, union
from gpudoctor.profile import empty

PROFILED = ("light", "detail")
"""Observations that see the device; a step watched otherwise has no budget."""

BUSY_OWNERS = ("compute", "communication", "copies")


def derive(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Tables that follow from the device's timeline.

    Args:
        tables: `steps`, `ops`, `kernels`, `runtime_calls` and `collectives`, those that were measured.

    Returns:
        `kernels` and `collectives` with `exposed_ns`, `gaps`, `step_budget`, `kernel_runs`, `launch_queue` and
        `op_costs`; without device activities only `op_costs`.
    """
    ops = tables.get("ops", empty("ops"))
    kernels = tables.get("kernels", empty("kernels"))
    made = {"op_costs": op_costs.rows(ops, kernels if len(kernels) else None)} if len(ops) else {}
    if not len(kernels):
        return made
    role = _roles(kernels)
    made |= _exposed(kernels, role, tables.get("collectives"))
    steps = tables.get("steps", empty("steps"))
    steps = steps[frames.classified(steps, "observation", *PROFILED)].sort_values("start_ns")
    all_ = host.events(ops, tables.get("runtime_calls", empty("runtime_calls")))
    numbers = _call_events(all_, kernels)
    devices = frames.integers(kernels, "device")
    parts = [
        _of_device(one, np.flatnonzero(devices == one), kernels, role, numbers, steps, all_, ops)
        for one in np.unique(devices)
    ]
    for name in ("gaps", "step_budget", "kernel_runs", "launch_queue"):
        made[name] = pd.concat([part[name] for part in parts], ignore_index=True)
    for name, key in (("gaps", "gap"), ("kernel_runs", "run")):
        made[name][key] = frames.nullable_integers(np.arange(len(made[name])))
    return made


def _roles(kernels: pd.DataFrame) -> exposed.Roles:
    copies = frames.classified(kernels, "kind", "memcpy")
    return exposed.roles(copies, ~copies & frames.classified(kernels, "kernel_class", "communication"))


def _exposed(kernels: pd.DataFrame, role: exposed.Roles, collectives: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    start, dur = frames.integers(kernels, "start_ns"), frames.integers(kernels, "dur_ns")
    own, means = exposed.exposed_ns(start, dur, frames.integers(kernels, "device"), role)
    own = np.where(means, own, NULL)
    made = {"kernels": kernels.assign(exposed_ns=frames.nullable_integers(own))}
    if collectives is not None:
        at = frames.rows_of(frames.integers(kernels, "kernel"), frames.integers(collectives, "kernel"))
        found = np.where(at >= 0, own[at], NULL)
        made["collectives"] = collectives.assign(exposed_ns=frames.nullable_integers(found))
    return made


def _call_events(all_: Events, kernels: pd.DataFrame) -> np.ndarray:
    """Number of the event that launched each activity; -1 when not recorded."""
    calls = np.flatnonzero(all_.call != NULL)
    at = frames.rows_of(all_.call[calls], frames.integers(kernels, "call"))
    return np.where(at >= 0, calls[at], -1) if len(calls) else np.full(len(kernels), -1, np.intp)


def _of_device(
    device: int,
    rows: np.ndarray,
    kernels: pd.DataFrame,
    role: exposed.Roles,
    numbers: np.ndarray,
    steps: pd.DataFrame,
    all_: Events,
    ops: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The tables of one device."""
    start = frames.integers(kernels, "start_ns")
    rows = rows[np.argsort(start[rows], kind="stable")]
    activities = _activities(rows, kernels, role[rows], numbers[rows], all_)
    launching = activities.thread[activities.thread != NULL]
    threads = {one: host.thread(all_, one) for one in host.speakers(all_, launching)}
    begin = frames.integers(steps, "start_ns")
    end = begin + np.maximum(frames.integers(steps, "dur_ns"), 0)
    shares = device_budget.busy_shares(activities, begin, end)
    active = sum(shares.values()) > 0 if len(begin) else np.zeros(0, np.bool_)
    begin, end = begin[active], end[active]
    shares = {name: share[active] for name, share in shares.items()}
    number = frames.integers(steps, "step")[active]
    pieces = device_budget.idle(activities, device_budget.windows(begin, end), all_, threads)
    pieces, at = device_budget.cut_by_step(pieces, begin, end)
    waited = _waited(pieces)
    return {
        "gaps": _gap_rows(device, pieces, number[at], all_, ops),
        "step_budget": _budget_rows(device, number, shares, pieces, at),
        "kernel_runs": _run_rows(device, rows, activities, kernels, waited, ops),
        "launch_queue": _queue_rows(device, rows, activities, kernels),
    }


def _activities(
    rows: np.ndarray, kernels: pd.DataFrame, role: exposed.Roles, numbers: np.ndarray, all_: Events
) -> Activities:
    start = frames.integers(kernels, "start_ns")[rows]
    end = start + np.maximum(frames.integers(kernels, "dur_ns")[rows], 0)
    known = numbers >= 0
    if not len(all_.start):
        nothing = np.full(len(rows), NULL)
        return Activities(start, end, role, numbers, nothing, nothing, nothing)
    return Activities(
        start,
        end,
        role,
        numbers,
        np.where(known, all_.start[numbers], NULL),
        np.where(known, all_.end[numbers], NULL),
        np.where(known, all_.thread[numbers], NULL),
    )


def _waited(pieces: Pieces) -> Any:
    """Idle times in which the host waited, or that a wait left behind."""
    waits = np.isin(pieces.owner, (host.COMPILE, host.INPUT, host.SYNC, host.MEMORY))
    return merge(pieces.start[waits], pieces.end[waits])


def _gap_rows(device: int, pieces: Pieces, step: Ints, all_: Events, ops: pd.DataFrame) -> pd.DataFrame:
    known = pieces.event >= 0
    op = np.where(known, all_.op[pieces.event], NULL) if len(all_.op) else np.full(len(known), NULL)
    call = np.where(known, all_.call[pieces.event], NULL) if len(all_.op) else np.full(len(known), NULL)
    python = pieces.after >= 0
    at = frames.rows_of(frames.integers(ops, "op"), op)
    place = ops.iloc[np.maximum(at, 0)] if len(ops) else None
    values: dict[str, Any] = {
        "device": np.full(len(step), device),
        "step": step,
        "start_ns": pieces.start,
        "dur_ns": pieces.end - pieces.start,
        "owner": frames.spelled(pieces.owner.astype(np.intp), list(OWNERS)),
        "evidence": _evidence(pieces, all_),
        "op": np.where(python, NULL, op),
        "call": np.where(python, NULL, call),
    }
    if place is not None:
        values["file"] = place["file"].reset_index(drop=True).mask(at < 0)
        values["line"] = np.where(at < 0, NULL, frames.integers(place, "line"))
    return frames.declared("gaps", values)


def _evidence(pieces: Pieces, all_: Events) -> Any:
    """The name of the event that explains each piece; for Python those of the events around it."""
    nothing = len(all_.names)
    name = np.full(len(pieces.event), -1, np.intp)
    after = name.copy()
    if len(all_.name):
        name = np.where(pieces.event >= 0, all_.name[pieces.event], -1)
        after = np.where(pieces.after >= 0, all_.name[pieces.after], -1)
    pairs, code = np.unique(after * (nothing + 1) + name, return_inverse=True)
    texts = []
    for pair in pairs.tolist():
        last, event = divmod(pair + 1, nothing + 1)  # codes are -1 and up
        event -= 1
        text = None if event < 0 else all_.names[event]
        texts.append(text if last < 0 or text is None else f"after {all_.names[last]}, before {text}")
    return pd.array(texts, dtype="string").take(code)


def _budget_rows(device: int, step: Ints, shares: Mapping[str, Ints], pieces: Pieces, at: np.ndarray) -> pd.DataFrame:
    idle = np.zeros((len(step), len(OWNERS)), np.int64)
    np.add.at(idle, (at, pieces.owner.astype(np.intp)), pieces.end - pieces.start)
    names = [*BUSY_OWNERS, *OWNERS]
    columns = np.column_stack([*(shares[name] for name in BUSY_OWNERS), idle]) if len(step) else idle
    return frames.declared(
        "step_budget",
        {
            "step": np.repeat(step, len(names)),
            "device": np.full(len(step) * len(names), device),
            "owner": frames.spelled(np.tile(np.arange(len(names)), len(step)), names),
            "dur_ns": columns.reshape(-1),
        },
    )


def _run_rows(
    device: int, rows: np.ndarray, activities: Activities, kernels: pd.DataFrame, waited: Any, ops: pd.DataFrame
) -> pd.DataFrame:
    single = frames.classified(kernels, "kind", "kernel")[rows] & ~frames.flags(kernels, "graph")[rows]
    stream = frames.integers(kernels, "stream")[rows]
    made = kernel_runs.runs(activities.start, activities.end, stream, activities.call_end, single, waited)
    inside = np.flatnonzero(made.member >= 0)
    head = rows[inside[np.unique(made.member[inside], return_index=True)[1]]]
    place = _places(rows[inside], made.member[inside], len(made.start), kernels, ops)
    return frames.declared(
        "kernel_runs",
        {
            "device": np.full(len(made.start), device),
            "stream": made.stream,
            "step": frames.integers(kernels, "step")[head],
            "start_ns": made.start,
            "dur_ns": made.end - made.start,
            "kernels": made.kernels,
            "kernel_ns": made.kernel_ns,
            "gap_ns": made.end - made.start - made.kernel_ns,
        }
        | place,
    )


def _places(
    kernel: np.ndarray, run: np.ndarray, count: int, kernels: pd.DataFrame, ops: pd.DataFrame
) -> dict[str, Any]:
    """The user's line that most kernels of each run come from."""
    codes, _ = pd.factorize(kernels["file"])
    line = frames.integers(kernels, "line")[kernel]
    known = (codes[kernel] >= 0) & (line != NULL)
    seen = pd.DataFrame({"run": run[known], "file": codes[kernel][known], "line": line[known], "kernel": kernel[known]})
    best = np.full(count, -1, np.intp)
    if len(seen):
        sizes = seen.groupby(["run", "file", "line"], sort=True)["kernel"].agg(["size", "first"]).reset_index()
        top = sizes.sort_values("size", kind="stable").drop_duplicates("run", keep="last")
        best[top["run"].to_numpy()] = top["first"].to_numpy()
    found = best >= 0
    row = kernels.iloc[np.maximum(best, 0)].reset_index(drop=True)
    at = frames.rows_of(frames.integers(ops, "op"), frames.integers(row, "op"))
    made: dict[str, Any] = {
        "file": row["file"].mask(~found),
        "line": np.where(found, frames.integers(row, "line"), NULL),
    }
    if len(ops):
        made["function"] = ops["function"].iloc[np.maximum(at, 0)].reset_index(drop=True).mask(~found | (at < 0))
    return made


def _queue_rows(device: int, rows: np.ndarray, activities: Activities, kernels: pd.DataFrame) -> pd.DataFrame:
    known = activities.call >= 0
    call = activities.call[known]
    step = frames.integers(kernels, "step")[rows][known]
    launch = launch_queue.first_of_call(call) & (step != NULL)
    begun = activities.call_start[known]
    seen = pd.DataFrame(
        {
            "step": step,
            "queue": activities.start[known] - begun,
            "starved": launch_queue.starved(union(merge(activities.start, activities.end)), begun),
            "host": activities.call_end[known] - begun,
        }
    )[launch]
    sums = seen.groupby("step").agg(
        launches=("queue", "size"), queue=("queue", "median"), starved=("starved", "mean"), host=("host", "sum")
    )
    return frames.declared(
        "launch_queue",
        {
            "step": sums.index.to_numpy(np.int64),
            "device": np.full(len(sums), device),
            "launches": sums["launches"].to_numpy(np.int64),
            "median_queue_ns": sums["queue"].to_numpy().round().astype(np.int64),
            "starved_share": sums["starved"].to_numpy(np.float64),
            "host_ns": sums["host"].to_numpy(np.int64),
        },
    )
