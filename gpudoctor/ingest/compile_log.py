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

from gpudoctor.userfiles import UserFiles

_HEAD = re.compile(r"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\]]*\] (?=\{)")
_RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.M)
_BREAK_ID = re.compile(r"/gb/(gb\d+)\.html", re.I)
_PREAMBLES = ("Encountered graph break", "Failed to handle graph break gracefully")
_MISMATCH = re.compile(
    r"tensor '(.+?)' (size|stride|rank) mismatch(?: at index (\d+))?\. expected ([-\d]+), actual ([-\d]+)"
)
_SHAPE_EXPRESSION = re.compile(r"\.(?:size|stride)\(\)|\.storage_offset\(\)|\bs\d+\b|\bEq\(|\bNe\(|\bu\d+\b")
_EQUALITY = re.compile(r"^(.*?)\s*(?:==|<=|>=|<|>|!=|is)\s*(.+?)(?:\s{2,}#.*|\s+#.*)?$")


@dataclass(slots=True)
class CompileTables:
    """Rows of the three tables, and what went wrong while reading."""

    compilations: list[dict[str, Any]] = field(default_factory=list)
    graph_breaks: list[dict[str, Any]] = field(default_factory=list)
    recompiles: list[dict[str, Any]] = field(default_factory=list)
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

    def add(self, metadata: dict[str, Any], payload: str) -> None:
        if "str" in metadata:
            text, number = metadata["str"]
            self._strings[int(number)] = text
            return
        if metadata.get("frame_id") is None or metadata.get("frame_compile_id") is None:
            return
        compile_id = f"{metadata['frame_id']}/{metadata['frame_compile_id']}"
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
        row["resumes"] = bool(_RESUME.match(name))
        for file, line, _ in reversed(stack[:-1]):
            if (shown := self.files.name(file)) is not None:
                row["caller_file"], row["caller_line"] = shown, line
                break

    def _metrics(self, compile_id: str, metadata: dict[str, Any]) -> None:
        row, metrics = self._compilation(compile_id, metadata), metadata["compilation_metrics"]
        name, file = metrics.get("co_name"), metrics.get("co_filename")
        if name:
            row |= {"function": name, "file": self.files.name(file) or file, "line": metrics.get("co_firstlineno")}
            row["resumes"] = bool(_RESUME.match(name))
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
        }

    def _graph_break(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        self._compilation(compile_id, metadata)
        self.tables.graph_breaks.append(parse_graph_break(payload, self.files) | _ids(compile_id, metadata))

    def _recompile(self, compile_id: str, metadata: dict[str, Any], payload: str) -> None:
        self._compilation(compile_id, metadata)
        self.tables.recompiles.append(parse_recompile(payload) | _ids(compile_id, metadata))

    def finish(self) -> CompileTables:
        for row in self._open.values():
            row["dynamic_dims"] = len(row.pop("_symbols"))
        self.tables.compilations = sorted(self._open.values(), key=lambda row: (row["frame"], row["attempt"]))
        return self.tables


def _ids(compile_id: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"compile_id": compile_id, "frame": int(metadata["frame_id"])}


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


def root_function(name: str | None) -> str | None:
    """The function a continuation belongs to: `forward` for `torch_dynamo_resume_in_forward_at_20`."""
    while name is not None and (match := _RESUME.match(name)):
        name = match[1]
    return name


def parse_graph_break(payload: str, files: UserFiles) -> dict[str, Any]:
    """What a graph-break record says: the user's line, whose code broke, reason, explanation, hints, id.

    The line is that of the innermost frame of the user's in the traceback: Dynamo's own first line can point into
    torch (a compiled optimizer, a hook).
    """
    said, _, trace = payload.partition("User code traceback:")
    trace = trace.partition("Traceback (most recent call last)")[0]
    frames = [(name, int(line), function) for name, line, function in _FRAME.findall(trace)]
    place: dict[str, Any] = {"file": None, "line": None, "function": None, "owner": "library"}
    for depth, (name, line, function) in enumerate(reversed(frames)):
        shown = files.name(name)
        if shown is not None:
            place |= {"file": shown, "line": line, "function": None if function == "<module>" else function}
            inner = [file for file, _, _ in frames[len(frames) - depth :]]
            place["owner"] = _owner(inner)
            break
    else:
        head = re.search(r"in user code at (.+):(\d+)", said)
        if head and (shown := files.name(head[1])) is not None:
            place |= {"file": shown, "line": int(head[2]), "owner": "user"}
    found = _BREAK_ID.search(said)
    return place | _reason(said) | {"break_id": found[1].upper() if found else None, "skipped": "SKIP" in said[:400]}


def _owner(inner: list[str]) -> str:
    """Whose code broke, from the files of the frames below the user's line. Module calls only pass a call on."""
    own = [file for file in inner if "/torch/nn/modules/" not in file]
    if not own:
        return "user"
    if any("/torch/optim/" in file for file in own):
        return "torch.optim"
    return "torch" if any("/torch/" in file for file in own) else "library"


def _reason(said: str) -> dict[str, Any]:
    """Reason, explanation and hints, each without Dynamo's indentation and repetition."""
    body = said.partition("Graph Break Reason:")[2] or said
    body = re.sub(r"^\s*For more details about this graph break.*$", "", body, flags=re.M)
    parts = re.split(r"\n\s*(Explanation|Hint|Developer debug context):", body)
    lines = [line.strip() for line in parts[0].strip().splitlines() if line.strip()]
    while len(lines) > 1 and lines[0].startswith(_PREAMBLES):
        lines = lines[1:]
    texts: dict[str, list[str]] = {}
    for kind, text in zip(parts[1::2], parts[2::2], strict=True):
        said_once = text.partition("*** While handling this graph break")[0]
        texts.setdefault(kind, []).append(re.sub(r"\s+", " ", said_once).strip())
    explanation = " ".join(texts.get("Explanation", []))
    # Dynamo goes on with a listing of its graph, which repeats the user's line
    explanation = re.sub(r"\s*The branch condition involves.*", "", explanation)
    hints = [hint for hint in texts.get("Hint", []) if not hint.startswith("This graph break is fundamental")]
    return {
        "reason": lines[0].rstrip(":") if lines else None,
        "explanation": explanation or None,
        "hint": "\n".join(hints) or None,
    }


def parse_recompile(payload: str) -> dict[str, Any]:
    """What a recompile record says: the guard that failed against the newest older code, parsed into what changed."""
    text = payload.strip()
    try:
        decoded = json.loads(text)
        text = "\n".join(map(str, decoded)) if isinstance(decoded, list) else str(decoded)
    except ValueError:
        pass
    reasons = [re.sub(r"^-?\s*\d+/\d+:\s*", "", line.strip()) for line in text.splitlines() if line.strip()]
    if not reasons:
        return {"cause": "other", "guard": None}
    guard = reasons[0]
    if match := _MISMATCH.search(guard):
        source, what, dimension, expected, actual = match.groups()
        return {
            "cause": "shape",
            "guard": guard,
            "source": re.sub(r"^L\['(\w+)'\]", r"\1", source) if what != "rank" else f"{source} (rank)",
            "dimension": int(dimension) if dimension else None,
            "expected": expected,
            "actual": actual,
        }
    shape = bool(_SHAPE_EXPRESSION.search(guard.partition("  #")[0]))
    equality = _EQUALITY.match(guard)
    dimension = re.search(r"\.(?:size|stride)\(\)\[(\d+)\]", guard)
    return {
        "cause": "shape" if shape else "value" if equality else "other",
        "guard": guard,
        "source": equality[1] if equality else None,
        "dimension": int(dimension[1]) if dimension else None,
        "expected": equality[2] if equality else None,
        "actual": None,
    }
