"""Joins the compile log with the run: the step of a compile, its torch.compile call, the batch that changed a shape."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gpudoctor.ingest.compile_breaks import root_function
from gpudoctor.ingest.compile_log import CompileTables
from gpudoctor.ingest.steps import step_at
from gpudoctor.ingest.watch import WatchLog

Row = dict[str, Any]


@dataclass(slots=True)
class _Family:
    """Compilations of one function and its continuations; `frames` are those with a graph."""

    rows: list[Row] = field(default_factory=list)
    frames: set[int] = field(default_factory=set)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if row["graph_ops"]:
            self.frames.add(row["frame"])


def join(
    tables: CompileTables,
    log: WatchLog,
    steps: Sequence[Row],
    batches: Sequence[Row],
    ops: pd.DataFrame | None,
) -> None:
    """Fills the columns that the log alone cannot give, in place.

    Args:
        tables: rows read from the compile log.
        log: the watch log, for times and torch.compile calls.
        steps: rows of `steps`.
        batches: rows of `batches`.
        ops: the table `ops`; None when no step was profiled, then what ran is unknown.
    """
    by_id = {row["compile_id"]: row for row in tables.compilations}
    waiting: dict[str, list[Row]] = {}
    for row in tables.compilations:
        waiting.setdefault(row["compile_id"], []).append(row)  # after a reset ids come again, in the same order
    for span in log.compilations:
        if span.kind == "dynamo" and waiting.get(span.compile_id):
            row = waiting[span.compile_id].pop(0)
            row["start_ns"] = span.start_ns
            if span.file is not None:
                row["caller_file"], row["caller_line"] = span.file, span.line
            row["step"] = step_at(steps, span.start_ns) if steps else None
    _complete(tables.compilations)
    ran = None if ops is None else set(ops["region"].dropna().astype(str))
    warm = {row["step"] for row in steps if row["warmup"]}
    for row in tables.compilations:
        row["warmup"] = (row.get("step") is None or row["step"] in warm) if steps else None
        row["ran_in_steps"] = None if ran is None else row["compile_id"] in ran
    functions = set() if ops is None else set(_places(ops))
    families: dict[tuple[Any, Any], _Family] = {}
    for row in tables.compilations:
        families.setdefault(_root(row), _Family()).add(row)
    for row in tables.graph_breaks:
        _graph_break(row, by_id, families, ran, functions)
    for row in tables.recompiles:
        _recompile(row, by_id, log, batches)
    _values(tables.recompiles)


def _complete(compilations: Sequence[Row]) -> None:
    """Fills what the record of a refused compilation lacks (the recompile limit) from the same frame's others."""
    known: dict[int, Row] = {}
    for row in compilations:  # in order of frame and attempt
        if row["function"] is not None:
            known[row["frame"]] = row
            continue
        for key in ("function", "file", "line", "resumes", "caller_file", "caller_line"):
            row[key] = known.get(row["frame"], {}).get(key)


def _values(recompiles: Sequence[Row]) -> None:
    """A guard on a value does not say what came: the next one that fails on the same code does."""
    for row, following in itertools.pairwise(recompiles):
        same = all(row.get(key) == following.get(key) for key in ("frame", "source", "changed"))
        if same and row.get("cause") == "value" and row.get("actual") is None:
            row["actual"] = following.get("expected")


def _graph_break(
    row: Row,
    by_id: Mapping[str, Row],
    families: Mapping[tuple[Any, Any], _Family],
    ran: set[str] | None,
    functions: set[tuple[Any, Any]],
) -> None:
    own = by_id.get(row["compile_id"], {})
    row["step"] = own.get("step")
    family = families.get(_root(own), _Family())
    row["compiled"] = _root(own)[1]
    row["graphs"] = len(family.frames)
    row["skipped"] = bool(row["skipped"]) or (own.get("graph_ops") is None and not family.frames)
    if ran is not None:
        row["ran_in_steps"] = _ran(row, own, family.rows, ran, functions)


def _root(row: Row) -> tuple[Any, Any]:
    return row.get("file"), root_function(row.get("function"))


def _places(ops: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(file, function) of the user's that called operators."""
    known = ops[["file", "function"]].dropna().drop_duplicates()
    return zip(known["file"].astype(str), known["function"].astype(str), strict=True)


def _ran(row: Row, own: Row, family: Sequence[Row], ran: set[str], functions: set[tuple[Any, Any]]) -> bool:
    """Whether the code that broke ran in the profiled steps.

    Another compilation of the same frame that ran instead says that it did not: a break in validation only.
    """
    if row["compile_id"] in ran:
        return True
    if any(c["compile_id"] in ran and c["frame"] == row["frame"] for c in family):
        return False
    # nothing was compiled in front of the break: the continuation runs, or all of the function runs eagerly
    if any(c["compile_id"] in ran for c in family):
        return True
    eager = {(row["file"], row["function"]), (own.get("file"), root_function(own.get("function")))}
    return any((file, str(function).rpartition(".")[2]) in eager for file, function in functions)


def _recompile(row: Row, by_id: Mapping[str, Row], log: WatchLog, batches: Sequence[Row]) -> None:
    own = by_id.get(row["compile_id"], {})
    for key in ("step", "file", "line", "caller_file", "caller_line", "dur_ns", "dynamic_dims"):
        row[key] = own.get(key)
    row["function"] = root_function(own.get("function"))
    row["refused"] = bool(own.get("limit_hit"))
    call = _compile_call(own, log)
    if call is not None:
        row |= {"compile_file": call["file"], "compile_line": call["line"], "compile_dynamic": call["dynamic"]}
    batch = next((b for b in reversed(batches) if own.get("start_ns") and b["start_ns"] < own["start_ns"]), None)
    loader = next((item for item in log.loaders if batch and item["loader"] == batch["loader"]), None)
    if batch is not None and loader is not None and loader["batch_size"] and batch["size"]:
        row["ragged_batch"] = batch["size"] < loader["batch_size"] and str(batch["size"]) in (
            str(row.get("actual")),
            str(row.get("expected")),
            str(None),
        )
        row |= {"loader_file": loader["file"], "loader_line": loader["line"]}


def _compile_call(own: Row, log: WatchLog) -> Row | None:
    """The torch.compile call whose target is the compiled function, or contains the call to it."""
    root = root_function(own.get("function"))
    same_file = [call for call in log.compile_calls if call.get("file") and call.get("target_file") == own.get("file")]
    for call in same_file:
        if call["target_line"] == own.get("line"):
            return call
    for call in same_file:
        if str(call["target"]).rpartition(".")[2] == root or root == "forward":
            return call
    known = [call for call in log.compile_calls if call.get("file")]
    return known[0] if len(known) == 1 else None
