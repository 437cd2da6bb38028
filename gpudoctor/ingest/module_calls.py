"""Fills the table `module_calls` from what the recorder saw of calls and of their autograd graphs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.ingest.validation import passes, waited_for
from gpudoctor.ingest.watch import WatchLog

_AS_THEY_ARE = (
    *("seen", "file", "line", "function", "module", "training", "grad", "start_ns", "dur_ns", "nodes"),
    *("outputs", "saved_bytes", "random"),
)


def add(
    raw: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None,
    log: WatchLog,
    step_rows: Sequence[Mapping[str, Any]],
    run: Mapping[str, Any] | None,
    tables: dict[str, list[dict[str, Any]]],
    missing: dict[str, str],
) -> None:
    """Adds the table, or why there is none.

    Args:
        raw: content of `module_calls.json`: the calls, or that watching them failed; None when it was not written.
        log: the watch log.
        step_rows: rows of `steps`.
        run: `run.json`; None when the process was killed.
        tables: takes the rows.
        missing: takes the reason.
    """
    if raw is None:
        missing["module_calls"] = "no profiled step was watched line by line"
    elif isinstance(raw, Mapping):
        missing["module_calls"] = "gpudoctor could not watch the calls of modules to the end in this run"
    elif not log.backwards:
        missing["module_calls"] = "the run never called backward: what a graph is built for cannot be judged"
    else:
        ended = run is not None and run.get("stopped_by_gpudoctor") is False
        tables["module_calls"] = rows(raw, log, step_rows, ended)


def rows(
    raw: Sequence[Mapping[str, Any]], log: WatchLog, step_rows: Sequence[Mapping[str, Any]], ended: bool
) -> list[dict[str, Any]]:
    """Rows of `module_calls`.

    Calls before the first backward call are left out: a trial of the model, or its set-up. So are calls that the
    recorder took for validation, as nothing had been trained on the batch before, when training went on right there.

    Args:
        raw: what the recorder wrote, in the order of the calls.
        log: the watch log, with a backward call at least.
        step_rows: rows of `steps`.
        ended: the script ran to its end, so what was not used by then never is.
    """
    first = log.backwards[0].start_ns
    profiled = [row for row in step_rows if row["observation"] == "detail"]
    starts = [row["start_ns"] for row in profiled]
    backwards = [span.start_ns for span in log.backwards]
    validations = passes(log, waited_for(log))
    optimized = [span.end_ns for span in log.optimizer_steps]
    made = []
    for number, call in enumerate(raw):
        end_ns = call["start_ns"] + call["dur_ns"]
        if bisect_right(backwards, end_ns) == 0 and not call["used"] and call["start_ns"] < first:
            continue
        if call["seen"] == "validation" and not any(v.start_ns <= call["start_ns"] < v.end_ns for v in validations):
            continue
        at = bisect_right(starts, call["start_ns"]) - 1
        inside = at >= 0 and call["start_ns"] < profiled[at]["start_ns"] + profiled[at]["dur_ns"]
        row: dict[str, Any] = {"call": number, "step": profiled[at]["step"] if inside else None}
        row |= {name: call[name] for name in _AS_THEY_ARE}
        later = bisect_left(backwards, end_ns) < len(backwards)
        row |= {"graph": _graph(call, later or ended), "unused": call["outputs"] - call["used"]}
        updates = bisect_left(optimized, call["start_ns"]) + call["weights"]
        row |= {"repeats": call["repeats"], "equal": call.get("equal"), "weights": updates}
        made.append(row)
    return made


def _graph(call: Mapping[str, Any], trained_on: bool) -> str | None:
    """What became of a call's graph.

    Args:
        call: as the recorder wrote it.
        trained_on: a backward call came afterwards, or the script ended: what is still there is used no more.
    """
    outputs = call["outputs"]
    if not outputs:
        return None
    if call["used"] == outputs:
        return "used"
    if call["used"] or call["inside"]:
        return "partly"
    return "unused" if call["freed"] == outputs or trained_on else "open"
