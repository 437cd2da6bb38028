"""Reads what the what-if left: the tables `what_if`, `what_if_graphs` and `what_if_breaks`, or why there are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gpudoctor.ingest import compile_breaks, compile_records
from gpudoctor.ingest.watch import WatchLog
from gpudoctor.recorder import what_if_result
from gpudoctor.recorder.options import FILE as OPTIONS
from gpudoctor.userfiles import UserFiles

TABLES = ("what_if", "what_if_graphs", "what_if_breaks")
_KERNEL_CALL = re.compile(r"^\s+(?:(?:cpp|mps)_fused\w*\(|triton_\w+\.run\()", re.M)
_EXTERN_CALL = re.compile(r"^\s+(?:\w+ = )?(?:extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?)\(", re.M)
_STACK_BELOW = re.compile(
    r'(User code traceback:\n).*File "[^"]*/gpudoctor/recorder/what_if\.py", line \d+, in \w+\n[^\n]*\n', re.S
)
"""What a traceback has in front of the traced model: the user's loop, stopped in a step, and the recorder."""
_FIRST_REASONS = 3  # the rest is in the log

Row = dict[str, Any]


def add(
    recording: Path,
    rank: Path,
    files: UserFiles,
    run: dict[str, Any] | None,
    log: WatchLog,
    tables: dict[str, list[Row]],
    missing: dict[str, str],
    how: dict[str, str],
) -> None:
    """Adds the three tables, or the reason why they were not measured.

    Args:
        recording: the recording's folder.
        rank: the process's folder in it.
        files: names the user's files.
        run: what the recorder wrote at its end; None when the process was killed.
        log: the watch log.
        tables: gets the rows.
        missing: gets the reason.
        how: gets what to do about it, where that is not what the tables' declaration says.
    """
    compiles = bool(log.compile_calls or tables.get("compilations"))
    result = what_if_result.read(rank)
    reason, instead = _why_none(_options(recording), result, run, compiles)
    if reason is None and result is not None:
        breaks, code = _log(rank / what_if_result.TRACE, files, result)
        if any(result.graph_ops):
            tables["what_if"] = [_row(result, breaks, code)]
            tables["what_if_graphs"] = [{"graph": n, "ops": ops} for n, ops in enumerate(result.graph_ops)]
            tables["what_if_breaks"] = breaks
            return
        reason, instead = f"torch.compile would make no graph of {result.module}{_first(breaks)}", ""
    missing.update(dict.fromkeys(TABLES, reason or "the recording has none"))
    if instead is not None:
        how.update(dict.fromkeys(TABLES, instead))


def _options(recording: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((recording / OPTIONS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _why_none(
    options: dict[str, Any], result: what_if_result.Result | None, run: dict[str, Any] | None, compiles: bool
) -> tuple[str | None, str | None]:
    """Why nothing was measured and what to do about it; None: something was, and what the tables declare."""
    again = "record the run again"
    reasons: tuple[tuple[Any, str | None, str | None], ...] = (
        (compiles, "the script compiles already", ""),
        (options.get("what_if") == "none", "the tracing was switched off (--no-what-if)", "leave out --no-what-if"),
        (
            options.get("run_to_end"),
            "the script was not to be stopped (--run-to-end, or a block recorded from Python)",
            "let `gpudoctor check` stop the script",
        ),
        (run is None, "the process was killed", again),
        (
            not (run or {}).get("stopped_by_gpudoctor"),
            "the script ended by itself before gpudoctor stopped it",
            "`--steps N` stops it sooner",
        ),
        (
            options.get("stop") == "raise",
            "the script was to end by SystemExit (--stop raise): code of its own still ran afterwards",
            "leave out `--stop raise`",
        ),
        (result is None, "the recording has no result of it: the file is missing or damaged", again),
        (result is not None and result.running, "a signal ended the process while the model was traced", again),
        (result is not None and result.reason, result.reason if result is not None else None, None),
    )
    return next(((reason, how) for applies, reason, how in reasons if applies), (None, None))


def _log(path: Path, files: UserFiles, result: what_if_result.Result) -> tuple[list[Row], str]:
    """The breaks in the log of the tracing, each place and reason once, and the output code in it."""
    found: dict[tuple[Any, ...], Row] = {}
    code = []
    for metadata, text in compile_records.records(path) if path.is_file() else ():
        if metadata and "inductor_output_code" in metadata:
            code.append(text)
        elif metadata and (metadata.get("artifact") or {}).get("name") == "dynamo_graph_break_reason":
            row = compile_breaks.parse_graph_break(_STACK_BELOW.sub(r"\1", text), files)
            if row["file"] is None:  # code of a library's: it belongs to the line that calls the model
                row |= {"file": result.file, "line": result.line, "function": result.function}
            found.setdefault((row["file"], row["line"], row["reason"]), row)
    return list(found.values()), "\n".join(code)


def _row(result: what_if_result.Result, breaks: list[Row], code: str) -> Row:
    row: Row = {
        "module": result.module,
        "file": result.file,
        "line": result.line,
        "function": result.function,
        "modules": result.modules,
        "forward_share": result.forward_share,
        "graphs": sum(ops > 0 for ops in result.graph_ops),
        "breaks": len(breaks),
        "ops": sum(result.graph_ops),
        "guards": result.guards,
        "dur_ns": _ns(result.seconds),
        "remade_inputs": result.remade,
        "eager_kernels": result.eager_kernels,
        "inductor_ns": _ns(result.inductor_seconds),
        "inductor_failure": result.inductor_failure,
    }
    if code and result.inductor_failure is None:
        row["kernels"], row["extern_calls"] = len(_KERNEL_CALL.findall(code)), len(_EXTERN_CALL.findall(code))
    return row


def _first(breaks: list[Row]) -> str:
    """The first reasons, behind a colon."""
    said = [f"{row['file']}:{row['line']} {row['reason']}" if row["file"] else str(row["reason"]) for row in breaks]
    more = f"; {len(said) - _FIRST_REASONS} more" if len(said) > _FIRST_REASONS else ""
    return f": {'; '.join(said[:_FIRST_REASONS])}{more}" if said else ""


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
