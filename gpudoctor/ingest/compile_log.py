"""Reads torch.compile's structured log (TORCH_TRACE format) into compilations, graph breaks and recompiles.

A record is a glog line `V<MMDD> <time> <pid> <file>:<line>] {metadata}` and, when the metadata says so, a payload whose
lines each begin with a tab. Record names are the same from torch 2.7.1 to 2.13; the format is that of
torch/_logging/_internal.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.ingest.compile_breaks import parse_graph_break
from gpudoctor.ingest.compile_cudagraphs import skipped
from gpudoctor.ingest.compile_guards import parse_recompile
from gpudoctor.ingest.inductor_code import CodeLog, CodeTables
from gpudoctor.userfiles import UserFiles

_HEAD = re.compile(r"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\]]*\] (?=\{)")
RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")


@dataclass(slots=True)
class CompileTables:
    """Rows of the tables, and what went wrong while reading."""

    compilations: list[dict[str, Any]] = field(default_factory=list)
    graph_breaks: list[dict[str, Any]] = field(default_factory=list)
    recompiles: list[dict[str, Any]] = field(default_factory=list)
    code: CodeTables = field(default_factory=CodeTables)
    damaged: int = 0


def records(path: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Metadata and payload of each record; metadata is None for a record that cannot be read."""
    metadata: dict[str, Any] | None = None
    payload: list[str] = []
    pending = False
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("\t"):
                payload.append(line[1:])
                continue
            if pending:
                yield metadata, "".join(payload)
            payload, pending = [], True
            head = _HEAD.match(line)
            try:
                metadata = json.loads(line[head.end() :]) if head else None
            except ValueError:
                metadata = None
    if pending:
        yield metadata, "".join(payload)


def read(paths: Iterable[Path], files: UserFiles, zero_unix_ns: int | None) -> CompileTables:
    """Reads the logs of one process.

    Args:
        paths: log files, in order.
        files: names the user's files.
        zero_unix_ns: the recording's zero; without it times are null.
    """
    reader = _Reader(files, zero_unix_ns)
    for path in paths:
        for metadata, payload in records(path):
            if metadata is None:
                reader.tables.damaged += 1
            else:
                reader.add(metadata, payload)
    return reader.finish()


class _Reader:
    """Collects records; interned strings and compilations refer to earlier ones."""

    def __init__(self, files: UserFiles, zero_unix_ns: int | None) -> None:
        self.files, self.zero = files, zero_unix_ns
        self.tables = CompileTables()
        self._strings: dict[int, str] = {}
        self._open: dict[str, dict[str, Any]] = {}
        self._code = CodeLog()

    def add(self, metadata: dict[str, Any], payload: str) -> None:
        if "str" in metadata:
            text, number = metadata["str"]
            self._strings[int(number)] = text
            return
        if metadata.get("frame_id") is None or metadata.get("frame_compile_id") is None:
            return
        compile_id = f"{metadata['frame_id']}/{metadata['frame_compile_id']}"
        self._code.add(compile_id, metadata, payload)
        artifact = (metadata.get("artifact") or {}).get("name")
        if "dynamo_start" in metadata:
            self._start(compile_id, metadata)
        elif artifact == "dynamo_graph_break_reason":
            self._graph_break(compile_id, metadata, payload)
        elif artifact == "recompile_reasons":
            self._recompile(compile_id, metadata, payload)
        elif "create_symbol" in metadata:
            row = self._compilation(compile_id, metadata)
            if ".size()" in str(metadata["create_symbol"].get("source")):
                row["_symbols"].add(metadata["create_symbol"].get("source"))
        elif "compilation_metrics" in metadata:
            self._metrics(compile_id, metadata)
        elif "bwd_compilation_metrics" in metadata:
            took = metadata["bwd_compilation_metrics"].get("duration_us")
            if took is not None:
                row = self._compilation(compile_id, metadata)
                row["backward_ns"] = (row["backward_ns"] or 0) + int(took) * 1000
            if (why := skipped(metadata["bwd_compilation_metrics"], self.files)) and compile_id in self._open:
                self._open[compile_id] |= why

    def _compilation(self, compile_id: str, metadata: dict[str, Any]) -> dict[str, Any]:
        if compile_id not in self._open:
            self._open[compile_id] = {
                "compile_id": compile_id,
                "frame": int(metadata["frame_id"]),
                "attempt": int(metadata["frame_compile_id"]),
                "function": None,
                "file": None,
                "line": None,
                "caller_file": None,
                "caller_line": None,
                "backward_ns": None,
                "graph_ops": None,
                "_symbols": set(),
            }
        return self._open[compile_id]

    def _start(self, compile_id: str, metadata: dict[str, Any]) -> None:
        row = self._compilation(compile_id, metadata)
        stack = [
            (str(self._strings.get(f.get("filename"), f.get("filename"))), int(f.get("line") or 0), str(f.get("name")))
            for f in metadata["dynamo_start"].get("stack") or []
        ]
        if not stack:
            return
        file, line, name = stack[-1]
        row |= {"file": self.files.name(file) or file, "line": line, "function": name}
        row["resumes"] = bool(RESUME.match(name))
        for file, line, _ in reversed(stack[:-1]):
            if (shown := self.files.name(file)) is not None:
                row["caller_file"], row["caller_line"] = shown, line
                break

    def _metrics(self, compile_id: str, metadata: dict[str, Any]) -> None:
        row, metrics = self._compilation(compile_id, metadata), metadata["compilation_metrics"]
        name, file = metrics.get("co_name"), metrics.get("co_filename")
        if name:
            row |= {"function": name, "file": self.files.name(file) or file, "line": metrics.get("co_firstlineno")}
            row["resumes"] = bool(RESUME.match(name))
        begun, took = metrics.get("start_time"), metrics.get("entire_frame_compile_time_s")
        if metrics.get("duration_us") is not None:
            took = metrics["duration_us"] / 1e6
        if begun is not None and self.zero is not None:
            row["start_ns"] = int(begun * 1e9) - self.zero
        row |= {
            "dur_ns": _ns(took),
            "backend_ns": _ns(metrics.get("backend_compile_time_s")),
            "graph_ops": metrics.get("graph_op_count"),
            "guards": metrics.get("guard_count"),
            "fail_type": metrics.get("fail_type"),
            "fail_reason": metrics.get("fail_reason"),
        } | skipped(metrics, self.files)

    def _graph_break(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        self._compilation(compile_id, metadata)
        self.tables.graph_breaks.append(parse_graph_break(payload, self.files) | _ids(compile_id, metadata))

    def _recompile(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        self._compilation(compile_id, metadata)
        self.tables.recompiles.append(parse_recompile(payload, self.files) | _ids(compile_id, metadata))

    def finish(self) -> CompileTables:
        for row in self._open.values():
            row["dynamic_dims"] = len(row.pop("_symbols"))
        self.tables.code = self._code.tables(self.files)
        self.tables.compilations = sorted(self._open.values(), key=lambda row: (row["frame"], row["attempt"]))
        return self.tables


def _ids(compile_id: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"compile_id": compile_id, "frame": int(metadata["frame_id"])}


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


def root_function(name: str | None) -> str | None:
    """The function a continuation belongs to: `forward` for `torch_dynamo_resume_in_forward_at_20`."""
    while name is not None and (match := RESUME.match(name)):
        name = match[1]
    return name
