"""A Kineto trace on its own → Profile: what can be known without a recording around it."""

from __future__ import annotations

import gc
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gpudoctor import columns, hardware
from gpudoctor import profile as schema
from gpudoctor.analysis import peaks
from gpudoctor.columns import MISSING, Array, Coded, Columns
from gpudoctor.errors import InputError
from gpudoctor.ingest import device, integrity, kineto, ops, phases, trace_steps
from gpudoctor.ingest.callers import Names
from gpudoctor.profile import Profile

_NOT_IN_A_TRACE = "a trace has no such record"


def load(path: Path) -> Profile:
    """The Profile of a trace file.

    Raises:
        InputError: the file is no Kineto trace, or nothing in it can be used.
    """
    collecting = gc.isenabled()
    gc.disable()  # millions of short-lived events and no cycles: the collector would walk them again and again
    try:
        return _load(path)
    finally:
        if collecting:
            gc.enable()


def _load(path: Path) -> Profile:
    trace = kineto.read(path)
    notes = integrity.notes(trace)
    if not any(len(trace.table(group)) for group in ("ops", "device", "runtime")):
        raise InputError(f"{path}: no operators and no device activities in it; is it a Kineto trace?")
    cut, source = trace_steps.windows(trace)
    zero = cut[0].start_ns
    observation = "detail" if _has_stacks(trace) else "light"
    op_rows = ops.build(trace, cut, -zero, observation, Names(guess=True), outside=True)
    if op_rows.tree.overlapping:
        notes.append(integrity.overlapping(op_rows.tree.overlapping))
    arrays, missing = _device_tables(trace, cut, zero, op_rows)
    step_rows = trace_steps.rows(cut, source, observation, -zero, op_rows)
    if source == "window":
        notes.append("the trace has no marked steps: its whole window counts as one step")
    facts = _facts(path, trace, step_rows, notes, zero, "kernels" in arrays)
    if len(op_rows):
        arrays |= {"ops": op_rows.columns, **_input_tables(op_rows)}
    else:
        missing["ops"] = "the trace has no operators"
    arrays["steps"] = columns.of_rows(step_rows)
    if gpus := hardware.of_trace(trace.metadata):
        arrays["host"] = peaks.columns(gpus)
        facts["gpu_specification"] = device.specification(gpus, trace)
    if facts.get("gpu_specification") is None and "kernels" in arrays:
        missing["roofline"] = f"the peaks of {_device_name(trace) or 'the GPU'} are not known"
    missing |= {name: _NOT_IN_A_TRACE for name in schema.TABLES if name not in arrays and name not in missing}
    return Profile(schema.tables({}, arrays), facts, {}, missing)


def _device_tables(
    trace: kineto.Trace, cut: list[ops.Window], zero: int, op_rows: ops.Ops
) -> tuple[dict[str, Columns], dict[str, str]]:
    made = device.build(trace, cut, -zero, op_rows)
    tables: dict[str, Columns] = {}
    missing: dict[str, str] = {}
    for name in ("kernels", "runtime_calls", "collectives", "memory_events", "stream_waits"):
        if filled := getattr(made, name):
            tables[name] = filled
        elif name == "memory_events":
            missing[name] = "the trace has no memory events"
        elif name == "stream_waits":
            missing[name] = "the trace has no record of synchronisations"
        else:
            missing[name] = "the trace has no device activities"
    if made.kernels:
        phases.mark_transfers(op_rows.columns, made.kernels)
    return tables, missing


def _has_stacks(trace: kineto.Trace) -> bool:
    calls = trace.table("ops")
    return bool(len(trace.table("python"))) or (len(calls) > 0 and bool((calls["call_stack"] >= 0).any()))


def _input_tables(op_rows: ops.Ops) -> dict[str, Columns]:
    """`batches` and `loaders` from the ranges that a DataLoader marks its `__next__` with."""
    names = op_rows.columns["name"]
    assert isinstance(names, Coded)
    used = np.unique(names.codes).tolist()
    kinds = [code for code in used if names.values[code].startswith("enumerate(DataLoader)#")]
    if not kinds:
        return {}
    rows = np.flatnonzero(np.isin(names.codes, kinds))
    loader = np.searchsorted(kinds, names.codes[rows])
    picked = {name: _picked(op_rows.columns[name], rows) for name in ("step", "start_ns", "dur_ns", "file", "line")}
    first = np.array([np.flatnonzero(loader == number)[0] for number in range(len(kinds))])
    alone = ["_SingleProcess" in names.values[code] for code in kinds]
    batches: Columns = {
        "loader": loader.astype(np.int64),
        "step": picked["step"],
        "start_ns": picked["start_ns"],
        "wait_ns": picked["dur_ns"],
    }
    loaders: Columns = {
        "loader": np.arange(len(kinds), dtype=np.int64),
        "num_workers": np.where(alone, 0, MISSING),
        "for_file": _picked(picked["file"], first),
        "for_line": _picked(picked["line"], first),
    }
    return {"batches": batches, "loaders": loaders}


def _picked(column: Array | Coded, rows: Array) -> Array | Coded:
    return column.take(rows) if isinstance(column, Coded) else column[rows]


def _facts(
    path: Path, trace: kineto.Trace, step_rows: list[dict[str, Any]], notes: list[str], zero: int, gpu: bool
) -> dict[str, Any]:
    return {
        "script": path.name,
        "device": _device_name(trace) or "GPU" if gpu or len(trace.table("runtime")) else "CPU",
        "gpu": gpu,
        "steps": len(step_rows),
        "step_source": step_rows[0]["source"],
        "profiled_step_ns": int(median(row["dur_ns"] for row in step_rows)),
        "stopped": "the trace ended",
        "notes": [*notes, "times are those of profiled steps: the trace has no others"],
        "rank": _rank(trace),
        "trace": {
            "text_bytes": trace.text_bytes,
            "events": sum(trace.columns.rows.values()),
            "zero_ns": zero,
            "base_ns": trace.metadata.get("baseTimeNanoseconds"),
        },
    }


def _device_name(trace: kineto.Trace) -> str | None:
    """Name of the GPU that ran most activities."""
    properties, busiest = trace.metadata.get("deviceProperties"), device.busiest(trace)
    for item in properties if isinstance(properties, list) else ():
        if isinstance(item, dict) and busiest in (item.get("id"), None) and item.get("name"):
            return str(item["name"])
    return None


def _rank(trace: kineto.Trace) -> int | None:
    info = trace.metadata.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) else None
