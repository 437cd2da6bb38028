"""A recorded run's facts that are no tables: its times, how it ended, the machine."""

from __future__ import annotations

from statistics import median
from typing import Any

from gpudoctor.analysis import profiler_cost
from gpudoctor.ingest import watch
from gpudoctor.recording import Recording


def of_run(
    recording: Recording,
    run: dict[str, Any],
    step_rows: list[dict[str, Any]],
    log: watch.WatchLog,
    environment: dict[str, str],
    notes: list[str],
    gpu: bool,
    ops_per_step: dict[int, int],
) -> dict[str, Any]:
    """The facts of a Profile, JSON-able.

    Args:
        recording: the whole recording, for its manifest.
        run: `run.json` of the process, empty when it was killed.
        step_rows: rows of `steps`.
        log: what the process's watch wrote.
        environment: versions and machine, as recorded.
        notes: what is to be said ahead of the findings.
        gpu: whether device activities were recorded.
        ops_per_step: recorded operators by step.
    """
    bare = [row["dur_ns"] for row in step_rows if row["observation"] == "bare" and not row["warmup"]]
    light = [row["dur_ns"] for row in step_rows if row["observation"] == "light" and not row["compile_ns"]]
    middle = int(median(bare)) if bare else None
    cost = profiler_cost.event_cost_ns(step_rows, ops_per_step, run.get("event_cost_ns"))
    manifest = recording.manifest
    return {
        "script": manifest.get("script", "?"),
        "argv": manifest.get("argv", []),
        "started": manifest.get("started"),
        "script_exit": None if run.get("stopped_by_gpudoctor") else manifest.get("script_exit"),
        "torch": environment.get("torch"),
        "device": environment.get("gpu") if gpu else "CPU" if environment else None,
        "gpu": gpu,
        "environment": environment,
        "steps": len(step_rows),
        "step_source": step_rows[0]["source"] if step_rows else None,
        "step_ns": middle,
        "step_spread_ns": int(median(abs(ns - (middle or 0)) for ns in bare)) if len(bare) >= 3 else None,
        "step_count": len(bare),
        "profiled_step_ns": int(median(light)) if light else None,
        "event_cost_ns": cost,
        "predicted_step_ns": profiler_cost.predicted_step_ns(step_rows, ops_per_step, cost),
        "epoch_seen": _epoch_seen(run, log),
        "stopped": run.get("stopped", "the process was killed"),
        "notes": notes,
    }


def _epoch_seen(run: dict[str, Any], log: watch.WatchLog) -> bool | None:
    """Whether an epoch's end was seen; None when the script has none to wait for (no DataLoader, or it ended)."""
    if log.epoch_ends:
        return True
    return None if not log.loaders or run.get("stopped_by_gpudoctor") is False else False
