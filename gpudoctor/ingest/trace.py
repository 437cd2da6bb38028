"""A Kineto trace on its own → Profile: what can be known without a recording around it."""

from __future__ import annotations

import gc
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor import hardware
from gpudoctor import profile as schema
from gpudoctor.analysis import budget, peaks
from gpudoctor.analysis.device import derive
from gpudoctor.errors import InputError
from gpudoctor.ingest import device, integrity, kineto, ops, trace_steps
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
    tables, missing = _device_tables(trace, cut, zero, op_rows)
    step_rows = trace_steps.rows(cut, source, observation, -zero, op_rows)
    if source == "window":
        notes.append("the trace has no marked steps: its whole window counts as one step")
    facts = _facts(path, trace, step_rows, notes, "kernels" in tables)
    if len(op_rows):
        tables["ops"] = schema.from_columns("ops", op_rows.columns)
    else:
        missing["ops"] = "the trace has no operators"
    tables["steps"] = schema.frame("steps", step_rows)
    tables |= _input_tables(tables)
    if "kernels" not in tables and len(op_rows):
        tables["step_budget"] = schema.frame("step_budget", budget.rows(step_rows, tables["ops"]))
    tables |= derive(tables)
    tables |= _peaks(trace)
    missing |= {name: _NOT_IN_A_TRACE for name in schema.TABLES if name not in tables and name not in missing}
    return Profile(tables, facts, {}, missing)


def _device_tables(
    trace: kineto.Trace, cut: list[ops.Window], zero: int, op_rows: ops.Ops
) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    made = device.build(trace, cut, -zero, op_rows)
    tables: dict[str, pd.DataFrame] = {}
    missing: dict[str, str] = {}
    for name in ("kernels", "runtime_calls", "collectives", "memory_events"):
        columns = getattr(made, name)
        if columns:
            tables[name] = schema.from_columns(name, columns)
        elif name == "memory_events":
            missing[name] = "the trace has no memory events"
        else:
            missing[name] = "the trace has no device activities"
    if made.kernels:
        ops.mark_transfers(op_rows, made.kernels)
    return tables, missing


def _has_stacks(trace: kineto.Trace) -> bool:
    calls = trace.table("ops")
    return bool(len(trace.table("python"))) or (len(calls) > 0 and bool((calls["call_stack"] >= 0).any()))


def _input_tables(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """`batches` and `loaders` from the ranges that a DataLoader marks its `__next__` with."""
    if "ops" not in tables:
        return {}
    found = tables["ops"]
    asked = found[found["name"].astype(str).str.startswith("enumerate(DataLoader)#")]
    kinds = {name: number for number, name in enumerate(dict.fromkeys(asked["name"].astype(str)))}
    if not kinds:
        return {}
    batches = [
        {"loader": kinds[str(row.name)], "step": row.step, "start_ns": row.start_ns, "wait_ns": row.dur_ns}
        for row in asked[["name", "step", "start_ns", "dur_ns"]].itertuples(index=False, name="Row")
    ]
    loaders: list[dict[str, Any]] = []
    for name, number in kinds.items():
        first = asked[asked["name"] == name].iloc[0]
        workers = 0 if "_SingleProcess" in name else None
        loaders.append({"loader": number, "num_workers": workers, "for_file": first["file"], "for_line": first["line"]})
    return {"batches": schema.frame("batches", batches), "loaders": schema.frame("loaders", loaders)}


def _peaks(trace: kineto.Trace) -> dict[str, pd.DataFrame]:
    """`host` with the peak rates of the trace's GPUs, those that are known."""
    properties = trace.metadata.get("deviceProperties")
    found: list[dict[str, Any]] = []
    for item in properties if isinstance(properties, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("id"), int):
            gpu = hardware.find(item["name"], item.get("totalGlobalMem"), item.get("numSms"))
            found += peaks.rows(gpu, item["id"]) if gpu is not None else []
    return {"host": schema.frame("host", found)} if found else {}


def _facts(
    path: Path, trace: kineto.Trace, step_rows: list[dict[str, Any]], notes: list[str], gpu: bool
) -> dict[str, Any]:
    return {
        "script": path.name,
        "device": _device_name(trace) or "GPU" if gpu else "CPU",
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
            "base_ns": trace.metadata.get("baseTimeNanoseconds"),
        },
    }


def _device_name(trace: kineto.Trace) -> str | None:
    """Name of the GPU that ran most activities."""
    properties = trace.metadata.get("deviceProperties")
    numbers = trace.table("device")["device"]
    if not isinstance(properties, list) or not len(numbers):
        return None
    values, counts = np.unique(numbers, return_counts=True)
    busiest = int(values[counts.argmax()])
    for item in properties:
        if isinstance(item, dict) and item.get("id") == busiest and item.get("name"):
            return str(item["name"])
    return None


def _rank(trace: kineto.Trace) -> int | None:
    info = trace.metadata.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) else None
