"""What the compile log says of one compilation's cost: its metrics record, whatever torch's version, or its events.

torch 2.4 counts seconds, nightlies of 2.6 microseconds under other names, and later versions have both. Where a record
lacks a phase, the times of the log's chromium events (`dynamo_timed`) stand in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LIMIT = re.compile(r"(?:recompile|cache[ _]size|accumulated\w*)[ _]limit|(?:Recompile|Cache)Limit", re.IGNORECASE)

_PHASES = {
    "dur_ns": ("duration_us", "entire_frame_compile_time_s", "dynamo_cumulative_compile_time_us"),
    "backend_ns": ("backend_compile_time_s", "aot_autograd_cumulative_compile_time_us"),
    "inductor_ns": ("inductor_compile_time_s", "inductor_cumulative_compile_time_us"),
    "codegen_ns": ("code_gen_time_s", "inductor_code_gen_cumulative_compile_time_us"),
    "kernel_compile_ns": ("triton_compile_time_us",),
    "autotune_ns": ("compile_time_autotune_time_us",),
    "restart_ns": ("dynamo_time_before_restart_s", "dynamo_compile_time_before_restart_us"),
}
_EVENTS = {
    "entire_frame_compile": "dur_ns",
    "backend_compile": "backend_ns",
    "inductor_compile": "inductor_ns",
    "code_gen": "codegen_ns",
    "async_compile.wait": "kernel_compile_ns",
    "CachingAutotuner.benchmark_all_configs": "autotune_ns",
}
_COUNTS = {
    "graph_ops": "graph_op_count",
    "graph_nodes": "graph_node_count",
    "graph_inputs": "graph_input_count",
    "guards": "guard_count",
}


@dataclass(slots=True)
class Events:
    """Times from the chromium events of one compilation, between its first record and its metrics.

    Attributes:
        start_us: when it began, Unix time.
        totals: nanoseconds by column.
    """

    start_us: float | None = None
    totals: dict[str, int] = field(default_factory=dict)
    _open: dict[str, list[float]] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        """Takes the begin or end of a timed part."""
        name, at = str(event.get("name")), number(event.get("ts"))
        if name not in _EVENTS or at is None:
            return
        begun = self._open.setdefault(name, [])
        if event.get("ph") == "B":
            begun.append(at)
            if name == "entire_frame_compile" and self.start_us is None:
                self.start_us = at
        elif event.get("ph") == "E" and begun:
            since = begun.pop()
            if not begun:  # a part inside a part of the same name is counted once
                column = _EVENTS[name]
                self.totals[column] = self.totals.get(column, 0) + max(0, int((at - since) * 1000))


def columns(metrics: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """Columns of `compilations` that a metrics record gives; `start_ns` is Unix time, null where neither says it."""
    row: dict[str, Any] = {name: events.totals.get(name) for name in _PHASES}
    for name, keys in _PHASES.items():
        found = next((ns for key in keys if (ns := nanoseconds(metrics, key)) is not None), None)
        row[name] = row[name] if found is None else found
    row["start_ns"] = started(metrics, events)
    if row["dur_ns"] is not None:
        row["dynamo_ns"] = max(0, row["dur_ns"] - (row["backend_ns"] or 0))
    row |= {column: whole(metrics.get(key)) for column, key in _COUNTS.items()}
    reasons = metrics.get("restart_reasons")
    if isinstance(reasons, list):
        row |= {"restarts": len(reasons), "restart_reasons": "\n".join(map(str, reasons)) or None}
    kind, reason = text(metrics.get("fail_type")), text(metrics.get("fail_reason"))
    return row | {
        "fail_type": kind,
        "fail_reason": reason,
        "limit_hit": bool(kind) and bool(_LIMIT.search(f"{kind} {(reason or '')[:300]}")),
    }


def started(metrics: Mapping[str, Any], events: Events) -> int | None:
    """When it began, in nanoseconds of Unix time."""
    exact, rough = whole(metrics.get("start_time_us")), number(metrics.get("start_time"))
    if exact is not None:
        return exact * 1000
    if rough is not None:
        return int(rough * 1e9)
    return None if events.start_us is None else int(events.start_us) * 1000


def nanoseconds(metrics: Mapping[str, Any], key: str) -> int | None:
    """A time of a metrics record; its unit is the end of its name."""
    found = number(metrics.get(key))
    return None if found is None or found < 0 else int(found * (1000 if key.endswith("_us") else 1_000_000_000))


def number(value: Any) -> float | None:
    """A finite number that fits a column; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        return None
    return value


def whole(value: Any) -> int | None:
    """The same as an integer."""
    found = number(value)
    return None if found is None else int(found)


def text(value: Any) -> str | None:
    """A text; None for everything else."""
    return value if isinstance(value, str) else None
