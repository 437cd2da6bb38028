"""A trace with its critical path drawn in: one process more, a slice a stretch, and arrows from each to the next.

Chrome's trace format, as Perfetto and chrome://tracing read it: `X` slices, `s` and `f` flow events that belong
together by category, name and id, and `M` events for names (Perfetto's `json_trace_parser_impl.cc`, `flow_tracker.cc`).
The trace itself is copied byte by byte, so its size does not matter and nothing of it is lost.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from gpudoctor.errors import InputError, UsageError
from gpudoctor.ingest.kineto.blocks import MAX_HEADER_BYTES, list_begin
from gpudoctor.ingest.kineto.salvage import Buffer
from gpudoctor.ingest.kineto.source import Source
from gpudoctor.ingest.ranks import DRAWN
from gpudoctor.profile import Profile

PROCESS = 4_200_000
"""Number of the process that is drawn, above every process id that Linux gives (`PID_MAX_LIMIT`, 2^22 = 4,194,304)."""

CATEGORY = "critical_path"
_LEVEL = 3
"""Of gzip: a third of the time of the default for a tenth more bytes, on trace text."""

_SHOWN = ("step", "kind", "op", "call", "kernel", "kernel_class")


def events(profile: Profile, offset_ns: int) -> Iterator[dict[str, Any]]:
    """The events that draw the critical path.

    Args:
        profile: its table `critical_path`.
        offset_ns: what is added to the trace's times to get the profile's.
    """
    rows = sorted(profile.rows("critical_path"), key=lambda row: int(row["position"]))
    lanes = {lane: PROCESS + 1 + number for number, lane in enumerate(dict.fromkeys(map(_lane, rows)))}
    yield from _names(lanes)
    for number, row in enumerate(rows):
        start, dur = int(row["start_ns"]) - offset_ns, int(row["dur_ns"])
        place = {"pid": PROCESS, "tid": lanes[_lane(row)]}
        slice_ = {"ph": "X", "cat": CATEGORY, "name": _label(row), "ts": _us(start), "dur": _us(dur)}
        yield {**slice_, **place, "args": _args(row)}
        arrow = {"cat": CATEGORY, "name": CATEGORY, **place}
        if number:  # after its slice: at the same time readers take the last one that began
            yield {"ph": "f", "bp": "e", "id": number, "ts": _us(start), **arrow}
        if number + 1 < len(rows):
            yield {"ph": "s", "id": number + 1, "ts": _us(start + max(0, dur - 1)), **arrow}


def _lane(row: Mapping[str, Any]) -> str:
    """Which line of the drawing a stretch is on: its thread, or its stream."""
    if row["stream"] is not None:
        return f"GPU {row['device'] or 0}, stream {row['stream']}"
    return "no thread known" if row["thread"] is None else f"thread {row['thread']}"


def _names(lanes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    process = {"ph": "M", "pid": PROCESS, "tid": 0, "ts": 0}
    yield {**process, "name": "process_name", "args": {"name": "critical path"}}
    yield {**process, "name": "process_labels", "args": {"labels": "gpudoctor"}}
    yield {**process, "name": "process_sort_index", "args": {"sort_index": -1}}
    for name, tid in lanes.items():
        thread = {"ph": "M", "pid": PROCESS, "tid": tid, "ts": 0}
        yield {**thread, "name": "thread_name", "args": {"name": name}}
        yield {**thread, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _label(row: Mapping[str, Any]) -> str:
    kind, name = str(row["kind"]), row["name"]
    if kind == "host":
        return str(name or "Python between operators")
    if kind in ("wait", "latency"):
        return f"{'launch latency' if kind == 'latency' else kind}: {name}" if name else kind
    return str(name or kind)


def _args(row: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: row[name] for name in _SHOWN if row[name] is not None}
    if row["file"] is not None and row["line"] is not None:
        made["line"] = f"{row['file']}:{row['line']}"
    return made


def _us(ns: int) -> msgspec.Raw:
    """Microseconds with all their digits: a float of microseconds since 1970 would lose nanoseconds."""
    return msgspec.Raw(f"{Decimal(ns).scaleb(-3):f}".encode())


# -- the file --------------------------------------------------------------------------------------------------------


def default_name(trace: Path) -> str:
    """Name of the file that `write` makes of a trace: always compressed, traces shrink to a tenth."""
    stem = trace.name.removesuffix(".gz").removesuffix(".json")
    return f"{stem}{DRAWN}.gz"


def write(trace: Path, out: Path, drawn: Iterable[Mapping[str, Any]]) -> str | None:
    """Copies a trace, with events put in front of its own; `out` appears whole or not at all.

    Args:
        trace: the trace, plain or gzip.
        out: where to; compressed when its name ends in `.gz`.
        drawn: the events.

    Returns:
        What of the trace could not be read, e.g. that its gzip data ends early; None when all was.

    Raises:
        InputError: the trace has no list of events, or cannot be read.
        UsageError: `out` cannot be written, or is the trace itself.
    """
    if out.resolve() == trace.resolve():
        raise UsageError(f"{out} is the trace itself, which stays as it is; name another file with -o")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    source = Source(trace)
    try:
        with _opened(draft, out.suffix == ".gz") as file:
            for piece in _pieces(source, drawn):
                file.write(piece)
        draft.replace(out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error}); name another file with -o") from None
    finally:
        draft.unlink(missing_ok=True)
    return source.cut


def _pieces(source: Source, drawn: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    buffer = Buffer(iter(source))
    begin = _begin(buffer, source.path)
    yield buffer.text[:begin]
    for event in drawn:
        yield b"\n" + msgspec.json.encode(event) + b","
    yield buffer.text[begin:]
    yield from buffer.rest()


def _begin(buffer: Buffer, trace: Path) -> int:
    """Place behind the bracket that opens the list of events."""
    size = 1 << 16
    while True:
        buffer.fill(size)
        start = len(buffer.text) - len(buffer.text.lstrip())
        if buffer.text[start : start + 1] == b"[":
            return start + 1
        if found := list_begin(buffer.text):
            return found.end()
        if buffer.ended or len(buffer.text) > MAX_HEADER_BYTES:
            raise InputError(f"{trace}: not a Kineto trace: its JSON has no traceEvents")
        size *= 4


def _opened(file: Path, compressed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file, "wb", compresslevel=_LEVEL)) if compressed else file.open("wb")
