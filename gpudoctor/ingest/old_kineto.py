"""Reads a Kineto trace (Chrome trace JSON, plain or gzip) into rows of `ops` and `kernels`.

Format: the trace event format's complete events (`ph` = X; `ts` and `dur` in microseconds) with Kineto's categories.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.errors import InputError

_GZIP = b"\x1f\x8b"
OPERATORS = frozenset({"cpu_op", "user_annotation", "operator"})
_READ = re.compile(r"<built-in method (cpu|tolist) of (?:Tensor|Parameter) object")
DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


class Event(msgspec.Struct, frozen=True, gc=False):
    """One trace event, as written."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct):
    traceEvents: list[msgspec.Raw] = msgspec.field(default_factory=list)  # noqa: N815 - the format's own name
    baseTimeNanoseconds: int = 0  # noqa: N815


@dataclass(slots=True)
class Node:
    """A call on a thread's stack: operator, annotation, line mark or Python function.

    Attributes:
        start_ns, end_ns: in nanoseconds from the trace's own base.
        parent: the operator or annotation that encloses it.
        python: the innermost Python function that ran when it began.
    """

    name: str
    cat: str
    start_ns: int
    end_ns: int
    thread: int
    args: dict[str, Any]
    parent: Node | None = None
    python: Node | None = None
    module: str | None = None
    mark: int | None = None
    children_ns: int = 0
    depth: int = 0


@dataclass(slots=True)
class Trace:
    """A trace, decoded.

    Attributes:
        nodes: operators and annotations of all threads in time order, stacks resolved.
        device: device activities in time order, raw.
        base_ns: what the trace's times are relative to, ns since 1970.
        bad: events that could not be read.
        with_stack: Python functions were recorded.
        last_ns: end of the last event.
    """

    nodes: list[Node] = field(default_factory=list)
    device: list[tuple[Event, dict[str, Any]]] = field(default_factory=list)
    base_ns: int = 0
    bad: int = 0
    with_stack: bool = False
    device_names: dict[int, str] = field(default_factory=dict)


def read(path: Path, mark_prefix: str) -> Trace:
    """Reads a trace file.

    Args:
        path: the file.
        mark_prefix: names that begin so are line marks; the number that follows is the mark's id.

    Raises:
        InputError: the file is no Kineto trace.
    """
    content = _bytes(path)
    try:
        decoded = msgspec.json.decode(content, type=_Trace)
        listed = decoded.traceEvents
    except msgspec.MsgspecError:
        try:
            listed, decoded = msgspec.json.decode(content, type=list[msgspec.Raw]), _Trace()
        except msgspec.MsgspecError as error:
            raise InputError(f"{path}: not a Kineto trace ({error}); expected JSON with traceEvents") from None
    trace = Trace(base_ns=decoded.baseTimeNanoseconds)
    events: list[tuple[Event, dict[str, Any]]] = []
    event_decoder, args_decoder = msgspec.json.Decoder(Event), msgspec.json.Decoder(dict[str, Any])
    for raw in listed:
        try:
            event = event_decoder.decode(raw)
            if event.ph != "X":
                continue
            args = args_decoder.decode(event.args)
        except msgspec.MsgspecError:
            trace.bad += 1
            continue
        if event.cat.lower() in DEVICE:
            trace.device.append((event, args))
        elif event.cat.lower() in OPERATORS or event.cat == "python_function":
            events.append((event, args))
    if not events and not trace.device:
        raise InputError(f"{path}: a JSON file without operators or device activities; is it a Kineto trace?")
    _resolve(trace, events, mark_prefix)
    trace.device.sort(key=lambda pair: pair[0].ts)
    return trace


def _bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def nanoseconds(microseconds: float) -> int:
    """A trace's time in integer nanoseconds (exact below 2**53 ns)."""
    return round(microseconds * 1000)


def _resolve(trace: Trace, events: list[tuple[Event, dict[str, Any]]], mark_prefix: str) -> None:
    """Nests the calls of each thread and carries the last line mark along."""
    threads: dict[tuple[Any, Any], list[tuple[Event, dict[str, Any]]]] = {}
    for pair in events:
        threads.setdefault((pair[0].pid, pair[0].tid), []).append(pair)
    for (_, tid), calls in threads.items():
        calls.sort(key=lambda pair: (pair[0].ts, -pair[0].dur))
        _resolve_thread(trace, calls, _number(tid), mark_prefix)
    trace.nodes.sort(key=lambda node: (node.start_ns, -node.end_ns))


def _resolve_thread(trace: Trace, calls: list[tuple[Event, dict[str, Any]]], thread: int, mark_prefix: str) -> None:
    """Nests operators and Python functions apart: a range that Python opens outlives the call that opened it."""
    operators: list[Node] = []
    functions: list[Node] = []
    mark: int | None = None
    for event, args in calls:
        start = nanoseconds(event.ts)
        if event.name.startswith(mark_prefix):
            mark = int(event.name.removeprefix(mark_prefix))
            continue
        for stack in (operators, functions):
            while stack and stack[-1].end_ns <= start:
                stack.pop()
        node = Node(event.name, event.cat, start, start + nanoseconds(event.dur), thread, args)
        node.python = functions[-1] if functions else None
        node.module = node.python.module if node.python is not None else None
        if event.cat == "python_function":
            trace.with_stack = True
            if event.name.startswith("nn.Module: "):  # "nn.Module: Linear_3", numbered by first call
                node.module = event.name.removeprefix("nn.Module: ").rpartition("_")[0]
            if read := _READ.match(event.name):  # on a CPU they run no operator
                node.name = f"Tensor.{read[1]}"
            elif not event.name.startswith("<built-in"):  # a built-in function only passes its caller on
                functions.append(node)
                continue
            else:
                continue
        node.mark = mark
        if operators:
            node.parent = operators[-1]
            node.depth = node.parent.depth + 1
            node.parent.children_ns += min(node.end_ns, node.parent.end_ns) - start
        trace.nodes.append(node)
        operators.append(node)


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return -1
