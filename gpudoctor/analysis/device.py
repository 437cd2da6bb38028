"""Everything that is derived from the device's timeline: one call fills the tables that the loaders leave empty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudoctor.analysis import device_budget, exposed, frames, host, kernel_runs, launch_queue, op_costs, roofline
from gpudoctor.analysis.device_budget import OWNERS, Activities, Pieces
from gpudoctor.analysis.frames import Rows, pick, pick_texts
from gpudoctor.analysis.host import Events
from gpudoctor.analysis.intervals import Ints, Spans, merge
from gpudoctor.analysis.work import of_calls
from gpudoctor.columns import MISSING, Coded
from gpudoctor.hardware import Gpu
from gpudoctor.profile import empty, from_columns

PROFILED = ("light", "detail")
"""Observations that see the device; a step watched otherwise has no budget."""

BUSY_OWNERS = ("compute", "communication", "copies")


def derive(tables: Mapping[str, pd.DataFrame], gpu: Gpu | None = None) -> dict[str, pd.DataFrame]:
    """Tables that follow from the device's timeline.

    Args:
        tables: `steps`, `ops`, `kernels`, `runtime_calls` and `collectives`, those that were measured.
        gpu: the device's specification, None when it is not known: then there is no roofline.

    Returns:
        `kernels` and `collectives` with `exposed_ns` and `held_ns`, `gaps`, `step_budget`, `kernel_runs`,
        `launch_queue` and `op_costs`; without device activities only `op_costs`.
    """
    ops = tables.get("ops", empty("ops"))
    kernels = tables.get("kernels", empty("kernels"))
    made: dict[str, pd.DataFrame] = {}
    if len(ops):
        work = of_calls(ops)
        made["op_costs"] = op_costs.rows(ops, kernels if len(kernels) else None, work)
        if gpu is not None and len(kernels):
            made["roofline"] = roofline.table(ops, kernels, work, gpu)
    if not len(kernels):
        return made
    role = _roles(kernels)
    made |= _exposed(kernels, role, tables.get("collectives"), tables.get("runtime_calls", empty("runtime_calls")))
    steps = tables.get("steps", empty("steps"))
    steps = steps[frames.is_one_of(steps, "observation", *PROFILED)].sort_values("start_ns")
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
        made[name] = frames.with_integers(made[name], key, np.arange(len(made[name])))
    return made


def _roles(kernels: pd.DataFrame) -> exposed.Roles:
    copies = frames.is_one_of(kernels, "kind", "memcpy")
    return exposed.roles(copies, ~copies & frames.is_one_of(kernels, "kernel_class", "communication"))


def _exposed(
    kernels: pd.DataFrame, role: exposed.Roles, collectives: pd.DataFrame | None, calls: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    start, dur = frames.integers(kernels, "start_ns"), frames.integers(kernels, "dur_ns")
    device = frames.integers(kernels, "device")
    own, means = exposed.exposed_ns(start, dur, device, role)
    called, took = frames.integers(calls, "start_ns"), frames.integers(calls, "dur_ns")
    at = frames.rows_of(frames.integers(calls, "call"), frames.integers(kernels, "call"))
    blocks = frames.flags(calls, "blocks")
    blocked = merge(called[blocks], called[blocks] + took[blocks])
    held = exposed.held_ns(start, dur, device, role, pick(called + took, at, MISSING), blocked)
    own, held = np.where(means, own, MISSING), np.where(means, held, MISSING)
    made = {"kernels": frames.with_integers(frames.with_integers(kernels, "exposed_ns", own), "held_ns", held)}
    if collectives is not None:
        at = frames.rows_of(frames.integers(kernels, "kernel"), frames.integers(collectives, "kernel"))
        for name, values in (("exposed_ns", own), ("held_ns", held)):
            collectives = frames.with_integers(collectives, name, pick(values, at, MISSING))
        made["collectives"] = collectives
    return made


def _call_events(all_: Events, kernels: pd.DataFrame) -> Rows:
    """Number of the event that launched each activity; -1 when not recorded."""
    calls = np.flatnonzero(all_.call != MISSING)
    at = frames.rows_of(all_.call[calls], frames.integers(kernels, "call"))
    return np.where(at >= 0, calls[at], -1) if len(calls) else np.full(len(kernels), -1, np.intp)


def _of_device(
    device: int,
    rows: Rows,
    kernels: pd.DataFrame,
    role: exposed.Roles,
    numbers: Rows,
    steps: pd.DataFrame,
    all_: Events,
    ops: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The tables of one device."""
    start = frames.integers(kernels, "start_ns")
    rows = rows[np.argsort(start[rows], kind="stable")]
    activities = _activities(rows, kernels, role[rows], numbers[rows], all_)
    launching = activities.thread[activities.thread != MISSING]
    threads = {one: host.thread(all_, one) for one in host.speakers(all_, launching)}
    begin = frames.integers(steps, "start_ns")
    end = begin + np.maximum(frames.integers(steps, "dur_ns"), 0)
    shares = device_budget.busy_shares(activities, begin, end)
    if not any(share.any() for share in shares.values()):  # the device ran outside the steps only
        begin, end = begin[:0], end[:0]
        shares = {name: share[:0] for name, share in shares.items()}
    number = frames.integers(steps, "step")[: len(begin)]
    pieces = device_budget.idle(activities, device_budget.windows(begin, end), all_, threads)
    pieces, at = device_budget.cut_by_step(pieces, begin, end)
    waited = _waited(pieces)
    return {
        "gaps": _gap_rows(device, pieces, number[at], all_, ops),
        "step_budget": _budget_rows(device, number, shares, pieces, at),
        "kernel_runs": _run_rows(device, rows, activities, kernels, waited, ops),
        "launch_queue": _queue_rows(device, rows, activities, kernels),
    }


def _activities(rows: Rows, kernels: pd.DataFrame, role: exposed.Roles, numbers: Rows, all_: Events) -> Activities:
    start = frames.integers(kernels, "start_ns")[rows]
    end = start + np.maximum(frames.integers(kernels, "dur_ns")[rows], 0)
    launch = (pick(column, numbers, MISSING) for column in (all_.start, all_.end, all_.thread))
    return Activities(start, end, role, numbers, *launch)


def _waited(pieces: Pieces) -> Spans:
    """Idle times in which the host waited, or that a wait left behind."""
    waits = np.isin(pieces.owner, (host.COMPILE, host.INPUT, host.SYNC, host.MEMORY))
    return merge(pieces.start[waits], pieces.end[waits])


def _gap_rows(device: int, pieces: Pieces, step: Ints, all_: Events, ops: pd.DataFrame) -> pd.DataFrame:
    python = pieces.after >= 0
    event = np.where(python, -1, pieces.event)
    op = pick(all_.op, event, MISSING)
    at = frames.rows_of(frames.integers(ops, "op"), op)
    return from_columns(
        "gaps",
        {
            "device": np.full(len(step), device),
            "step": step,
            "start_ns": pieces.start,
            "dur_ns": pieces.end - pieces.start,
            "owner": Coded(pieces.owner.astype(np.int32), OWNERS),
            "evidence": _evidence(pieces, all_),
            "op": op,
            "call": pick(all_.call, event, MISSING),
            "file": pick_texts(ops, "file", at),
            "line": pick(frames.integers(ops, "line"), at, MISSING),
        },
    )


def _evidence(pieces: Pieces, all_: Events) -> Coded:
    """The name of the event that explains each piece; for Python those of the events around it."""
    name = pick(all_.name, pieces.event, -1).astype(np.int64)
    after = pick(all_.name, pieces.after, -1).astype(np.int64)
    if not all_.names:
        return Coded(np.full(len(name), -1, np.int32), ())
    pairs, code = np.unique(np.column_stack([after, name]), axis=0, return_inverse=True)
    said = [_between(all_.names[last], all_.names[event]) if last >= 0 else all_.names[event] for last, event in pairs]
    return Coded(np.where(name < 0, -1, code.reshape(-1)).astype(np.int32), said)


def _between(last: str, event: str) -> str:
    return f"after {last}, before {event}"


def _budget_rows(device: int, step: Ints, shares: Mapping[str, Ints], pieces: Pieces, at: Rows) -> pd.DataFrame:
    idle = np.zeros((len(step), len(OWNERS)), np.int64)
    np.add.at(idle, (at, pieces.owner.astype(np.intp)), pieces.end - pieces.start)
    names = (*BUSY_OWNERS, *OWNERS)
    table = np.column_stack([*(shares[name] for name in BUSY_OWNERS), idle])
    return from_columns(
        "step_budget",
        {
            "step": np.repeat(step, len(names)),
            "device": np.full(table.size, device),
            "owner": Coded(np.tile(np.arange(len(names), dtype=np.int32), len(step)), names),
            "dur_ns": table.reshape(-1),
        },
    )


def _run_rows(
    device: int, rows: Rows, activities: Activities, kernels: pd.DataFrame, waited: Spans, ops: pd.DataFrame
) -> pd.DataFrame:
    single = frames.is_one_of(kernels, "kind", "kernel")[rows] & ~frames.flags(kernels, "graph")[rows]
    stream = frames.integers(kernels, "stream")[rows]
    made = kernel_runs.runs(activities.start, activities.end, stream, activities.call_end, single, waited)
    inside = np.flatnonzero(made.member >= 0)
    head = rows[inside[np.unique(made.member[inside], return_index=True)[1]]]
    run, count = made.member[inside], len(made.start)
    file, line = frames.texts(kernels, "file").codes[rows[inside]], frames.integers(kernels, "line")[rows[inside]]
    known = (file >= 0) & (line != MISSING)
    place = _usual(run[known], np.column_stack([file, line])[known], rows[inside][known], count)
    ids, op_ids = frames.integers(ops, "op"), frames.integers(kernels, "op")
    op = frames.rows_of(ids, pick(op_ids, place, MISSING))
    launched = frames.rows_of(ids, op_ids[rows[inside]])
    phase = pick(frames.texts(ops, "phase").codes, launched, -1)
    told = phase >= 0
    phased = _usual(run[told], phase[told].reshape(-1, 1), launched[told], count)
    return from_columns(
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
            "phase": pick_texts(ops, "phase", phased),
            "file": pick_texts(kernels, "file", place),
            "line": pick(frames.integers(kernels, "line"), place, MISSING),
            "function": pick_texts(ops, "function", op),
        },
    )


def _usual(run: Rows, keys: Rows, row: Rows, count: int) -> Rows:
    """For each run one of the rows that have its most frequent keys; -1 for runs that have none."""
    made = np.full(count, -1, np.intp)
    if len(run):
        _, first, at = np.unique(np.column_stack([run, keys]), axis=0, return_index=True, return_inverse=True)
        sizes = np.bincount(at.reshape(-1))
        order = np.argsort(sizes, kind="stable")  # the most frequent is written last
        made[run[first[order]]] = row[first[order]]
    return made


def _queue_rows(device: int, rows: Rows, activities: Activities, kernels: pd.DataFrame) -> pd.DataFrame:
    known = activities.call >= 0
    call = activities.call[known]
    step = frames.integers(kernels, "step")[rows][known]
    launch = launch_queue.first_of_call(call) & (step != MISSING)
    begun = activities.call_start[known]
    seen = pd.DataFrame(
        {
            "step": step,
            "queue": activities.start[known] - begun,
            "starved": launch_queue.starved(merge(activities.start, activities.end), begun),
            "host": activities.call_end[known] - begun,
        }
    )[launch]
    sums = seen.groupby("step").agg(
        launches=("queue", "size"), queue=("queue", "median"), starved=("starved", "mean"), host=("host", "sum")
    )
    return from_columns(
        "launch_queue",
        {
            "step": sums.index.to_numpy(np.int64),
            "device": np.full(len(sums), device),
            "launches": sums["launches"].to_numpy(np.int64),
            "median_queue_ns": sums["queue"].to_numpy(np.float64).round().astype(np.int64),
            "starved_share": sums["starved"].to_numpy(np.float64),
            "host_ns": sums["host"].to_numpy(np.int64),
        },
    )
