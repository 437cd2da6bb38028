"""Recording → Profile: reads every part of a recorded process and joins them; keeps the tables as Parquet."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gpudoctor import columns, hardware
from gpudoctor import profile as schema
from gpudoctor.analysis import constant_sites, conv_sites, dtype_sites, peaks
from gpudoctor.analysis.derive import derived
from gpudoctor.errors import InputError
from gpudoctor.ingest import (
    burst_clock,
    compile_context,
    compile_effects,
    compile_log,
    compile_state,
    device,
    explicit_calls,
    growth,
    inductor_context,
    input_tables,
    integrity,
    kineto,
    light_lines,
    loop_work,
    module_calls,
    ops,
    padded_inputs,
    phases,
    rank_versions,
    recorded_memory,
    run_facts,
    scalers,
    setting_sites,
    steps,
    table_cache,
    watch,
    what_if,
)
from gpudoctor.ingest.callers import Names
from gpudoctor.profile import Profile
from gpudoctor.recording import Recording, part
from gpudoctor.schema.declare import GPU
from gpudoctor.userfiles import UserFiles


def load(recording: Recording) -> Profile:
    """The Profile of a recording's process that is judged, from the Parquet cache when it is there and whole.

    Raises:
        InputError: the recording is damaged beyond what can be left out.
    """
    if not recording.ranks:
        return _nothing(recording)
    cache = recording.path / table_cache.FOLDER
    cached = table_cache.read(cache, judged(recording))
    if cached is not None:
        return cached
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of rows and no cycles: the collector would walk them again and again
    try:
        made = _build(recording, judged(recording))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{recording.path}: the recording is damaged ({type(error).__name__}: {error}); record the run again"
        raise InputError(what) from error
    finally:
        if collecting:
            gc.enable()
    table_cache.write(cache, made)
    return made


def judged(recording: Recording) -> Path:
    """The process that is diagnosed: the first one that took about as many steps as any.

    Ranks of one job step alike. A helper that was forked and called backward before the training began does not.
    """
    said = [part(rank / "run.json", {}).get("steps") for rank in recording.ranks]
    steps = [number if isinstance(number, int) else 0 for number in said]
    return next(rank for rank, seen in zip(recording.ranks, steps, strict=True) if 2 * seen >= max(steps))


def _nothing(recording: Recording) -> Profile:
    """The Profile of a run in which no process imported torch: every table is missing, with that reason."""
    reason = (
        _read_text(recording.path / "unarmed.txt")
        or "the command ended before it imported torch, or before a training or inference loop began"
    )
    facts = run_facts.of_run(recording, {"stopped": reason}, [], watch.WatchLog(), {}, [reason], False, {})
    return Profile({}, facts, {}, dict.fromkeys(schema.TABLES, reason))


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _build(recording: Recording, rank: Path) -> Profile:
    begun = part(rank / "begun.json", {})
    bursts, run = part(rank / "bursts.json", []), part(rank / "run.json", None)
    environment = part(rank / "settings.json", {"settings": None, "environment": {}})
    sources = part(rank / "sources.json", {})
    log = watch.read(rank / "watch.jsonl")
    notes = _integrity(recording, rank, run, log)
    step_rows, batch_rows = steps.tables(log, bursts)
    tables: dict[str, list[dict[str, Any]]] = {"steps": step_rows, "batches": batch_rows}
    tables |= input_tables.tables(log, step_rows, batch_rows) | loop_work.tables(log, step_rows, sources)
    traced, specification = _traces(rank, bursts, log, step_rows, sources, notes)
    missing, how = dict[str, str](), dict[str, str]()
    reason = "the run used no GPU" if "ops" in traced else _why_no_ops(step_rows, bursts)
    missing.update(dict.fromkeys(_without_device(traced), reason))
    if "ops" not in traced:
        missing["ops"] = missing["step_budget"] = _why_no_ops(step_rows, bursts)
    notes += _compile_tables(rank, begun, log, tables, missing, traced)
    _compile_state(rank, tables, missing)
    what_if.add(recording.path, rank, _user_files(rank, begun), run, log, tables, missing, how)
    if "ops" in traced:
        phases.mark_compiled_optimizers(traced["ops"], tables.get("compilations", ()))
    tables["compile_calls"] = log.compile_calls
    rank_versions.add([part(one / "settings.json", {}) for one in recording.ranks], tables, missing)
    targets = part(rank / "compile_targets.json", {})
    if targets.get("watched") and "compilations" in tables:
        tables["compile_effects"] = compile_effects.rows(
            log.compile_calls, targets, tables["compilations"], tables["graph_breaks"]
        )
        compile_effects.mark(tables["graph_breaks"], tables["compile_effects"])
    else:
        missing["compile_effects"] = missing.get("compilations", "no profiled step was watched line by line")
    module_calls.add(part(rank / "module_calls.json", None), log, step_rows, run, tables, missing)
    padded_inputs.add(part(rank / "padded_inputs.json", None), log.compile_calls, step_rows, tables, missing, how)
    tables["schedulers"] = log.schedulers
    tables["backward_calls"] = scalers.backward_calls(log, step_rows)
    tables["scalers"], tables["scaler_steps"] = log.scalers, scalers.steps(log, step_rows)
    tables["optimizers"], tables["wrappers"] = log.optimizers, log.wrappers
    tables |= {
        "dtype_sites": dtype_sites.rows(sources),
        "conv_sites": conv_sites.rows(sources),
        "explicit_calls": explicit_calls.rows(log.explicit_calls, step_rows, sources),
        "constant_sites": constant_sites.rows(sources),
    }
    if environment["settings"] is not None:
        tables |= {
            "settings": setting_sites.placed(environment["settings"], sources),
            "environment": [{"name": name, "value": value} for name, value in environment["environment"].items()],
        }
    for name in ("host", "input_lines"):
        content: list[dict[str, Any]] = part(rank / f"{name}.json", [])
        if content:
            tables[name] = content
    files = _user_files(rank, begun)
    remembered = _memory(rank, log, run or {}, step_rows, sources, files, tables, missing, notes)
    missing["input_lines"] = "no batch was made in the main process during a profiled step"
    facts = run_facts.of_run(
        recording,
        run or {},
        step_rows,
        log,
        environment["environment"],
        notes,
        "kernels" in traced,
        Counter(traced["ops"]["step"].tolist()) if "ops" in traced else {},
    ) | {"gpu_specification": specification}
    peak_rates = traced.pop("host", None)
    frames = traced | {name: schema.frame(name, rows) for name, rows in tables.items()}
    if peak_rates is not None:
        frames["host"] = pd.concat([frames["host"], peak_rates], ignore_index=True) if "host" in frames else peak_rates
    return derived(Profile(schema.tables(frames, remembered), facts, sources, missing, how))


def _memory(
    rank: Path,
    log: watch.WatchLog,
    run: dict[str, Any],
    step_rows: list[dict[str, Any]],
    sources: dict[str, str],
    files: UserFiles,
    tables: dict[str, list[dict[str, Any]]],
    missing: dict[str, str],
    notes: list[str],
) -> dict[str, columns.Columns]:
    """Adds what was read of memory at the ends of steps, and what stays alive; returns the tables of the snapshot."""
    if log.memory:
        tables["memory_timeline"] = [_memory_row(reading, step_rows) for reading in log.memory]
    else:
        missing["memory_timeline"] = "the run used no GPU"
    growth.add(part(rank / "growth.json", None), log, step_rows, sources, tables, missing)
    remembered, unknown = recorded_memory.tables(rank, run, files, bool(log.memory), notes)
    missing.update(unknown)
    return remembered


def _memory_row(reading: tuple[int, ...], step_rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of `memory_timeline`: the reading belongs to the step that had just ended."""
    names = [name for name in schema.TABLES["memory_timeline"].names if name != "step"]
    row: dict[str, Any] = dict(zip(names, reading, strict=True))
    after = bisect_right([step["start_ns"] for step in step_rows], row["time_ns"] - 1) - 1
    return row | {"step": step_rows[after]["step"] if after >= 0 else None}


def _integrity(recording: Recording, rank: Path, run: dict[str, Any] | None, log: watch.WatchLog) -> list[str]:
    """What is to be said ahead of the findings."""
    notes = list((run or {}).get("notes", []))
    if run is None:
        notes.append("the process was killed: only what it had written by then was read")
    if log.damaged:
        notes.append(f"{log.damaged} lines of the watch log are damaged and were left out")
    if len(recording.ranks) > 1:
        notes.append(f"{len(recording.ranks)} ranks were recorded: {rank.name} was judged, the others were not")
    return notes


def _why_no_ops(step_rows: list[dict[str, Any]], bursts: list[dict[str, Any]]) -> str:
    if not step_rows:
        return "no training step was seen"
    if not bursts:
        compiling = sum(bool(row["compile_ns"]) for row in step_rows)
        why = (
            f": {compiling} of them compiled, and bursts wait for quiet ones" if compiling > len(step_rows) // 4 else ""
        )
        return f"none of the {len(step_rows)} steps seen was profiled{why}"
    seen = [row for row in step_rows if row["observation"] in ("light", "detail")]
    if not seen:
        return "what was profiled is no whole training step"
    if all(row["compile_ns"] for row in seen):
        return "every profiled step had a compile in it"
    return "the recorded profiles cannot be read"


def _without_device(traced: Mapping[str, object]) -> list[str]:
    """Tables that only device activities fill, and those that follow from them, where none were recorded."""
    followers = () if "kernels" in traced else (table.name for table in schema.TABLES.values() if table.how == GPU)
    return [name for name in (*_DEVICE_TABLES, *followers) if name not in traced]


_COMPILE_TABLES = ("compilations", "graph_breaks", "recompiles", "cache", "generated_kernels", "extern_calls")
_DEVICE_TABLES = ("kernels", "runtime_calls", "collectives", "memory_events", "stream_waits")


def _traces(
    rank: Path,
    bursts: list[dict[str, Any]],
    log: watch.WatchLog,
    step_rows: list[dict[str, Any]],
    sources: dict[str, str],
    notes: list[str],
) -> tuple[dict[str, pd.DataFrame], str | None]:
    """Tables from all bursts (steps with a compile only where a burst has no other), and the GPU's specification."""
    names = Names(
        part(rank / "lines.json", []), sources, part(rank / "names.json", {}), part(rank / "modules.json", [])
    )
    parts: dict[str, list[ops.Columns]] = {}
    specification: str | None = None
    rows = steps.profiled(step_rows, log)
    clean = {bursts[burst]["label"] for (burst, _), row in rows.items() if not row["compile_ns"]}
    for number, burst in enumerate(bursts):
        own = {mark: row for (at, mark), row in rows.items() if at == number}
        taken = {mark: row for mark, row in own.items() if not row["compile_ns"]}
        if not taken and burst["label"] not in clean:
            taken = own
        if not taken:
            continue
        try:
            trace = kineto.read(rank / burst["file"])
        except InputError as error:
            notes.append(f"a profiler burst is lost: {error}")
            continue
        notes += [f"{burst['file']}: {note}" for note in integrity.notes(trace)]
        windows, offset = burst_clock.windows(trace, number, log, taken)
        by_hand = any(row["source"] == "backward" for row in taken.values())
        first = {name: sum(map(columns.length, made)) for name, made in parts.items()}
        made = ops.build(trace, windows, offset, burst["label"], names, first.get("ops", 0), by_hand=by_hand)
        found = device.build(trace, windows, offset, made, (first.get("kernels", 0), first.get("runtime_calls", 0)))
        if found.kernels:
            phases.mark_transfers(made.columns, found.kernels)
            if "host" not in parts and (gpus := hardware.of_trace(trace.metadata)):
                parts["host"] = [dict(peaks.columns(gpus))]
                specification = device.specification(gpus, trace)
        if len(made):
            parts.setdefault("ops", []).append(made.columns)
        for name in _DEVICE_TABLES:
            if filled := getattr(found, name):
                parts.setdefault(name, []).append(filled)
    joined = {name: columns.joined(some) for name, some in parts.items()}
    if "kernels" in joined:
        light_lines.fill(joined)
    return {name: schema.from_columns(name, made) for name, made in joined.items()}, specification


def _compile_tables(
    rank: Path,
    begun: dict[str, Any],
    log: watch.WatchLog,
    tables: dict[str, list[dict[str, Any]]],
    missing: dict[str, str],
    traced: Mapping[str, pd.DataFrame],
) -> list[str]:
    """Adds what the compile log says: measured (if empty) whenever the log could be attached. Returns notes."""
    if not begun.get("compile_log", True):
        reason = "this torch has no structured compile log"
        missing.update(dict.fromkeys(_COMPILE_TABLES, reason))
        return []
    files = _user_files(rank, begun)
    read = compile_log.read(sorted((rank / "torch_trace").glob("*.log")), files, begun.get("zero_unix_ns"))
    seen = {span.compile_id for span in log.compilations}
    lost = len(seen - {row["compile_id"] for row in read.compilations})
    if lost:
        reason = f"the compile log is damaged: {lost} of {len(seen)} compilations are missing in it"
        missing.update(dict.fromkeys(_COMPILE_TABLES, reason))
        return []
    compile_context.join(read, log, tables["steps"], tables["batches"], traced.get("ops"))
    inductor_context.join(read.code, traced)
    tables |= {
        "compilations": read.compilations,
        "graph_breaks": read.graph_breaks,
        "recompiles": read.recompiles,
        "generated_kernels": read.code.kernels,
        "extern_calls": read.code.calls,
        "cache": read.cache,
    }
    return [compile_log.damage(read.damaged)] if read.damaged else []


def _compile_state(rank: Path, tables: dict[str, list[dict[str, Any]]], missing: dict[str, str]) -> None:
    """Adds what torch.compile's counters and caches were in the end."""
    state: dict[str, Any] = part(rank / compile_state.FILE, {})
    if not state:
        reason = "the run did not load torch.compile, or was killed before its end"
        missing.update(dict.fromkeys(("compile_counters", "cache_state"), reason))
        return
    tables["compile_counters"] = compile_state.counters(state)
    tables["cache_state"] = compile_state.caches(state)


def _user_files(rank: Path, begun: dict[str, Any]) -> UserFiles:
    files = UserFiles(begun.get("root", "."), begun.get("foreign"), here=False)
    files.known |= part(rank / "names.json", {})  # as they were named while the run knew them: cells of a notebook
    return files
