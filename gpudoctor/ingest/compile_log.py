"""Reads torch.compile's structured log (TORCH_TRACE format) into compilations, breaks, recompiles, cache look-ups.

Record names are the same from torch 2.7.1 to 2.13, and most are those of 2.4; the format is that of
torch/_logging/_internal.py. A record that does not say what its name promises is counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.ingest import compile_cache, compile_metrics
from gpudoctor.ingest.compile_breaks import RESUME, implied, parse_graph_break
from gpudoctor.ingest.compile_cudagraphs import skipped
from gpudoctor.ingest.compile_guards import parse_recompile
from gpudoctor.ingest.compile_metrics import Events
from gpudoctor.ingest.compile_records import decoded, records
from gpudoctor.ingest.inductor_code import CodeLog, CodeTables, has_code
from gpudoctor.units import plural
from gpudoctor.userfiles import UserFiles

_READ = frozenset({"dynamo_graph_break_reason", "recompile_reasons", "torch_version"})
"""Artifacts whose payload is read, beside the look-ups in caches."""

_VERSIONS = {"pytorch_version": "torch", "python_version": "python", "cuda_version": "cuda", "triton_version": "triton"}


@dataclass(slots=True)
class CompileTables:
    """Rows of the tables, and what else the log says.

    Attributes:
        compilations, graph_breaks, recompiles, cache: rows; the ids of compilations repeat after a `reset()`.
        code: what Inductor's output code says.
        damaged: records that could not be read.
        records: those that could.
        versions: of torch, python, cuda, triton, as far as the log names them.
        rank: the rank that the records name.
    """

    compilations: list[dict[str, Any]] = field(default_factory=list)
    graph_breaks: list[dict[str, Any]] = field(default_factory=list)
    recompiles: list[dict[str, Any]] = field(default_factory=list)
    cache: list[dict[str, Any]] = field(default_factory=list)
    code: CodeTables = field(default_factory=CodeTables)
    damaged: int = 0
    records: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    rank: int | None = None


def read(paths: Iterable[Path], files: UserFiles, zero_unix_ns: int | None) -> CompileTables:
    """Reads the logs of one process.

    Args:
        paths: log files, plain or gzip, in order.
        files: names the user's files.
        zero_unix_ns: the recording's zero; without it times are null.

    Raises:
        OSError: a log cannot be read.
    """
    reader = _Reader(files, zero_unix_ns)
    for path in paths:
        for metadata, payload in records(path, _wanted):
            reader.take(metadata, payload)
    return reader.finish()


def _artifact(metadata: dict[str, Any]) -> str | None:
    artifact = metadata.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else None
    return name if isinstance(name, str) else None


def _wanted(metadata: dict[str, Any]) -> bool:
    """Whether a payload is read: graphs on their way through the compiler are most of a log, and are passed over."""
    name = _artifact(metadata)
    if name is not None and (name in _READ or compile_cache.is_lookup(name)):
        return True
    return "chromium_event" in metadata or has_code(metadata)


@dataclass(slots=True)
class _Open:
    """One compilation while its records come in."""

    row: dict[str, Any]
    symbols: set[str] = field(default_factory=set)
    events: Events = field(default_factory=Events)
    lookups: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    started: bool = False
    ended: bool = False


class _Reader:
    """Collects records; interned strings and compilations refer to earlier ones."""

    def __init__(self, files: UserFiles, zero_unix_ns: int | None) -> None:
        self.files, self.zero = files, zero_unix_ns
        self.tables = CompileTables()
        self._strings: dict[int, str] = {}
        self._open: dict[str, _Open] = {}
        self._all: list[_Open] = []
        self._codes = CodeLog()

    def take(self, metadata: dict[str, Any] | None, payload: str) -> None:
        """Adds a record, or counts it as damaged."""
        try:
            if metadata is None:
                raise ValueError("no record")
            self._add(metadata, payload)
            self.tables.records += 1
        except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            self.tables.damaged += 1

    def _add(self, metadata: dict[str, Any], payload: str) -> None:
        if "str" in metadata:
            name, number = metadata["str"]
            self._strings[int(number)] = str(name)
            return
        if _artifact(metadata) == "torch_version":
            self._version(payload)
        event = decoded(payload) if "chromium_event" in metadata and payload else {}
        if not isinstance(event, dict):
            raise ValueError("no event")
        if self.tables.rank is None and isinstance(metadata.get("rank"), int):
            self.tables.rank = metadata["rank"]
        if metadata.get("frame_id") is None or metadata.get("frame_compile_id") is None:
            return
        frame, attempt = _id(metadata["frame_id"]), _id(metadata["frame_compile_id"])
        if event:
            self._event(frame, attempt, event)
        else:
            self._compile_record(frame, attempt, metadata, payload)

    def _compile_record(self, frame: int, attempt: int, metadata: dict[str, Any], payload: str) -> None:
        """A record of one compilation."""
        name = _artifact(metadata) or ""
        ids = {"compile_id": f"{frame}/{attempt}", "frame": frame}
        self._codes.add(f"{frame}/{attempt}", metadata, payload)
        if "dynamo_start" in metadata:
            self._start(self._compilation(frame, attempt, anew="started"), metadata)
        elif name == "dynamo_graph_break_reason":
            self._compilation(frame, attempt)
            self.tables.graph_breaks.append(_bounded(parse_graph_break(payload, self.files)) | ids)
        elif name == "recompile_reasons":
            self._compilation(frame, attempt)
            self.tables.recompiles.append(_bounded(parse_recompile(payload, self.files)) | ids)
        elif compile_cache.is_lookup(name):
            self._lookup(self._compilation(frame, attempt), compile_cache.lookup(name, payload) | ids)
        elif "create_symbol" in metadata:
            source = str(metadata["create_symbol"].get("source"))
            if ".size()" in source:
                self._compilation(frame, attempt).symbols.add(source)
        elif "compilation_metrics" in metadata:
            self._metrics(self._compilation(frame, attempt, anew="ended"), metadata["compilation_metrics"])
        elif "bwd_compilation_metrics" in metadata:
            self._backward(self._compilation(frame, attempt).row, metadata["bwd_compilation_metrics"])

    def _compilation(self, frame: int, attempt: int, anew: str | None = None) -> _Open:
        """The compilation with these ids.

        Args:
            frame: frame id.
            attempt: number of the compilation of that frame.
            anew: what there is once in a compilation; one that has it and ended is another, from before a `reset()`.
        """
        compile_id = f"{frame}/{attempt}"
        found = self._open.get(compile_id)
        if found is None or (anew is not None and found.ended and getattr(found, anew)):
            row = dict.fromkeys(_COLUMNS) | {"compile_id": compile_id, "frame": frame, "attempt": attempt}
            found = self._open[compile_id] = _Open(row)
            self._all.append(found)
        return found

    def _start(self, made: _Open, metadata: dict[str, Any]) -> None:
        made.started = True
        stack = [
            (str(self._strings.get(f.get("filename"), f.get("filename"))), int(f.get("line") or 0), str(f.get("name")))
            for f in metadata["dynamo_start"].get("stack") or []
        ]
        if not stack:
            return
        file, line, name = stack[-1]
        self._code(made.row, file, line, name)
        for file, line, _ in reversed(stack[:-1]):
            if (shown := self.files.name(file)) is not None:
                made.row["caller_file"], made.row["caller_line"] = shown, _line(line)
                break

    def _code(self, row: dict[str, Any], file: str, line: Any, name: str) -> None:
        row |= {"file": self.files.name(file) or file, "line": _line(line), "function": name}
        row["resumes"] = bool(RESUME.match(name))

    def _metrics(self, made: _Open, metrics: dict[str, Any]) -> None:
        row = made.row
        if name := compile_metrics.text(metrics.get("co_name")):
            self._code(row, str(metrics.get("co_filename")), metrics.get("co_firstlineno"), name)
        row |= compile_metrics.columns(metrics, made.events) | skipped(metrics, self.files)
        if file := compile_metrics.text(metrics.get("fail_user_frame_filename")):
            row |= {"fail_file": self.files.name(file) or file, "fail_line": _line(metrics["fail_user_frame_lineno"])}
        for key, name in _VERSIONS.items():
            if value := compile_metrics.text(metrics.get(key)):
                self.tables.versions.setdefault(name, value.partition(" (")[0])
        made.metrics, made.ended = metrics, True

    def _backward(self, row: dict[str, Any], metrics: dict[str, Any]) -> None:
        row["backward_graphs"] = (row["backward_graphs"] or 0) + 1
        took = compile_metrics.nanoseconds(metrics, "duration_us")
        if took is None:
            took = compile_metrics.nanoseconds(metrics, "inductor_compile_time_s")
        if took is not None:
            row["backward_ns"] = (row["backward_ns"] or 0) + took
        row |= skipped(metrics, self.files)

    def _event(self, frame: int, attempt: int, event: dict[str, Any]) -> None:
        made = self._compilation(frame, attempt)
        if event.get("name") == compile_cache.DISABLED:
            ids = {"compile_id": made.row["compile_id"], "frame": frame}
            self._lookup(made, {"kind": "fx_graph", "outcome": "disabled"} | ids)
        elif not made.ended:
            made.events.add(event)

    def _lookup(self, made: _Open, row: dict[str, Any]) -> None:
        self.tables.cache.append(row)
        if not made.ended:  # later ones are those of its backward graph
            made.lookups.append(row)

    def _version(self, payload: str) -> None:
        if version := compile_metrics.text(decoded(payload).get("pytorch_version")):
            self.tables.versions["torch"] = version

    def finish(self) -> CompileTables:
        """The tables, with what only all records together say."""
        last: dict[int, dict[str, Any]] = {}
        counted: dict[tuple[Any, ...], int] = {}
        for made in self._all:
            row = made.row
            if row["start_ns"] is not None:
                row["start_ns"] = None if self.zero is None else row["start_ns"] - self.zero
            row["dynamic_dims"] = len(made.symbols)
            row["cached"] = compile_cache.cached(made.lookups, made.metrics)
            if row["file"] is None and row["frame"] in last:  # refused at the recompile limit: its code was not named
                row |= {key: last[row["frame"]][key] for key in ("file", "line", "function", "resumes")}
            if row["file"] is not None:
                last[row["frame"]] = row
                code = (row["file"], row["line"], row["function"])
                counted[code] = row["code_compiles"] = counted.get(code, 0) + 1
        rows = sorted((made.row for made in self._all), key=lambda row: (row["frame"], row["attempt"]))
        self.tables.compilations = rows
        if not self.tables.graph_breaks:
            self.tables.graph_breaks = implied(rows)
        self.tables.code = self._codes.tables(self.files)
        return self.tables


_COLUMNS = (
    *("function", "file", "line", "resumes", "caller_file", "caller_line", "start_ns", "dur_ns", "dynamo_ns"),
    *("backend_ns", "inductor_ns", "codegen_ns", "kernel_compile_ns", "autotune_ns", "restart_ns", "backward_ns"),
    *("backward_graphs", "graph_ops", "graph_nodes", "graph_inputs", "guards", "restarts", "restart_reasons"),
    *("fail_type", "fail_reason", "fail_file", "fail_line", "limit_hit", "cached", "code_compiles"),
)


def _id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(value)
    return value


def _line(value: Any) -> int | None:
    return compile_metrics.whole(value)


def _bounded(row: dict[str, Any]) -> dict[str, Any]:
    """The row without integers that no column holds: the digits of a damaged payload."""
    return {key: None if isinstance(v, int) and abs(v) >= 2**53 else v for key, v in row.items()}


def damage(records: int) -> str:
    """The note on records that could not be read."""
    return f"{plural(records, 'record')} of the compile log {'is' if records == 1 else 'are'} damaged and left out"
