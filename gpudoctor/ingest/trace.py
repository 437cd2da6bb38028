"""A Kineto trace on its own → Profile: what can be known without a recording around it."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis import budget
from gpudoctor.ingest import kineto, ops, phases
from gpudoctor.profile import Profile

_STEP = "ProfilerStep#"


def load(path: Path) -> Profile:
    """The Profile of a trace file: steps are its ProfilerStep ranges, else the whole window counts as one step.

    Raises:
        InputError: the file is no Kineto trace.
    """
    trace = kineto.read(path, "gpudoctor::line#")
    notes = [f"{trace.bad} events are damaged and were left out"] if trace.bad else []
    windows, source = _windows(trace)
    zero = windows[0].start_ns
    observation = "detail" if trace.with_stack else "light"
    op_rows = ops.rows(trace, windows, -zero, observation, ops.Names((), ()), 0)
    kernel_rows = ops.kernel_rows(trace, windows, -zero, op_rows, 0)
    phases.mark_transfers(op_rows, kernel_rows)
    for row in op_rows:
        row.pop(ops.EXTERNAL)
    step_rows = [_step(window, zero, source, observation) for window in windows]
    if source == "window":
        notes.append("the trace has no ProfilerStep marks: its whole window counts as one step")
    tables: dict[str, list[dict[str, Any]]] = {"steps": step_rows}
    bare = "a trace has no such record"
    missing = {name: bare for name in schema.TABLES if name not in ("steps", "ops", "kernels", "step_budget")}
    if op_rows:
        tables["ops"] = op_rows
    if kernel_rows:
        tables["kernels"] = kernel_rows
    elif op_rows:
        tables["step_budget"] = budget.rows(step_rows, op_rows)
        missing["kernels"] = "the trace has no device activities"
    facts = {
        "script": path.name,
        "device": "GPU" if kernel_rows else "CPU",
        "gpu": bool(kernel_rows),
        "steps": len(step_rows),
        "step_source": source,
        "profiled_step_ns": int(median(row["dur_ns"] for row in step_rows)),
        "stopped": "the trace ended",
        "notes": [*notes, "times are those of profiled steps: the trace has no others"],
    }
    return Profile({name: schema.frame(name, rows) for name, rows in tables.items()}, facts, {}, missing)


def _windows(trace: kineto.Trace) -> tuple[list[ops.Window], str]:
    marked = [node for node in trace.nodes if node.name.startswith(_STEP) and node.name.removeprefix(_STEP).isdigit()]
    if marked:
        return [ops.Window(int(n.name.removeprefix(_STEP)), n.start_ns, n.end_ns) for n in marked], "ProfilerStep"
    starts = [node.start_ns for node in trace.nodes] + [kineto.nanoseconds(event.ts) for event, _ in trace.device]
    ends = [node.end_ns for node in trace.nodes]
    ends += [kineto.nanoseconds(event.ts) + kineto.nanoseconds(event.dur) for event, _ in trace.device]
    return [ops.Window(0, min(starts), max(ends))], "window"


def _step(window: ops.Window, zero: int, source: str, observation: str) -> dict[str, Any]:
    return {
        "step": window.step,
        "start_ns": window.start_ns - zero,
        "dur_ns": window.end_ns - window.start_ns,
        "observation": observation,
        "warmup": False,
        "source": source,
    }
