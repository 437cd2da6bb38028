"""Writes what a profiler has seen as torch.profiler does: Kineto's JSON, event by event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.synthetic.hardware import Gpu
from tests.synthetic.host import AUTOGRAD, PROCESS, Event

ORIGIN_US = 5_590_677_560_000
"""The trace's clock when the machine was switched on: it counts from the machine's boot."""

_INPUTS = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")
_FLOWS = ("cuda_runtime", "cuda_driver")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class _Number(str):
    """A number that is written with the digits given: a float of a large one would lose nanoseconds."""

    __slots__ = ()


def _us(ns: int, whole: bool) -> Any:
    return ns // 1000 if whole else _Number(f"{ns // 1000}.{ns % 1000:03d}")


def document(
    events: Iterable[Event],
    gpu: Gpu,
    *,
    whole_us: bool = False,
    stacks: bool = True,
    shapes: bool = True,
    distributed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A trace.

    Args:
        events: what was recorded.
        gpu: the device.
        whole_us: times in whole microseconds, as torch wrote them up to 2.2.
        stacks: Python functions were recorded.
        shapes: sizes and dtypes of operators' inputs were recorded.
        distributed: `distributedInfo`, of a rank among others.
    """
    seen = sorted(events, key=lambda event: (event.start_ns, -event.dur_ns))
    if not shapes:
        seen = [replace(event, args=_without_inputs(event.args)) for event in seen]
    first = seen[0].start_ns if seen else 0
    last = max((event.start_ns + event.dur_ns for event in seen), default=0)
    rows = [*_metadata(seen, first, whole_us)]
    launched = {e.args["correlation"] for e in seen if e.category in _DEVICE}
    for event in seen:
        rows.append(_span(event, whole_us))
        if event.category in _FLOWS and event.args["correlation"] in launched:
            rows.append(_flow("s", event, event.args["correlation"], "ac2g", whole_us))
        elif event.category in _DEVICE:
            rows.append(_flow("f", event, event.args["correlation"], "ac2g", whole_us))
    rows += [_span(event, whole_us) for event in _on_device(seen)]
    rows += _forward_backward(seen, whole_us)
    rows += _ends(first, last, whole_us)
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [gpu.properties()],
        "cupti_version": 24,
        "cuda_runtime_version": 12060,
        "cuda_driver_version": 12080,
    }
    if distributed is not None:
        head["distributedInfo"] = dict(distributed)
    if stacks:
        head |= {"with_stack": 1, "record_shapes": 1}
    if not whole_us:
        head |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": 1_790_857_026_000_000_000}
    return head | {"traceEvents": rows, "traceName": "trace.json"}


def _without_inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name not in _INPUTS}


def write(path: Path, trace: Mapping[str, Any]) -> Path:
    """Writes a trace with all its digits."""
    path.write_text(_dumps(trace), encoding="utf-8")
    return path


def _dumps(trace: Mapping[str, Any]) -> str:
    head = json.dumps({name: value for name, value in trace.items() if name != "traceEvents"})
    rows = ",\n".join(_row(row) for row in trace["traceEvents"])
    return f'{head[:-1]}, "traceEvents": [\n{rows}\n]}}\n'


def _row(row: Mapping[str, Any]) -> str:
    parts = (
        f'"{key}": {str(value) if isinstance(value, _Number) else json.dumps(value)}' for key, value in row.items()
    )
    return "{" + ", ".join(parts) + "}"


def _time(ns: int, whole: bool) -> Any:
    return _us(ORIGIN_US * 1000 + ns, whole)


def _span(event: Event, whole: bool) -> dict[str, Any]:
    head = {"cat": event.category, "name": event.name, "pid": event.process, "tid": event.thread}
    if event.category == "cpu_instant_event":
        return {"ph": "i", "s": "t", **head, "ts": _time(event.start_ns, whole), "args": event.args}
    dur = event.dur_ns
    if whole:  # both ends are cut: the length is the difference
        dur = ((event.start_ns + dur) // 1000 - event.start_ns // 1000) * 1000
    return {"ph": "X", **head, "ts": _time(event.start_ns, whole), "dur": _us(dur, whole), "args": event.args}


def _flow(phase: str, event: Event, number: int, kind: str, whole: bool) -> dict[str, Any]:
    row = {"ph": phase, "id": number, "pid": event.process, "tid": event.thread, "ts": _time(event.start_ns, whole)}
    return row | {"cat": kind, "name": kind} | ({"bp": "e"} if phase == "f" else {})


def _on_device(events: Sequence[Event]) -> list[Event]:
    """Ranges of the host as the device saw them: from the first to the last kernel that was launched in them."""
    calls = [e for e in events if e.category in _FLOWS]
    work: dict[int, list[Event]] = {}
    for event in events:
        if event.category in _DEVICE:
            work.setdefault(event.args["correlation"], []).append(event)
    made = []
    for mark in events:
        if mark.category != "user_annotation":
            continue
        end = mark.start_ns + mark.dur_ns
        inside = [c.args["correlation"] for c in calls if mark.start_ns <= c.start_ns < end and c.thread == mark.thread]
        lanes: dict[Any, list[Event]] = {}
        for event in (event for number in inside for event in work.get(number, ())):
            lanes.setdefault(event.thread, []).append(event)
        for lane, some in lanes.items():
            first, last = min(e.start_ns for e in some), max(e.start_ns + e.dur_ns for e in some)
            args = {"External id": mark.args["External id"]}
            made.append(Event("gpu_user_annotation", mark.name, 0, lane, first - 1, last - first + 1, args))
    return made


def _forward_backward(events: Iterable[Event], whole: bool) -> list[dict[str, Any]]:
    """Arrows from the last operator with a sequence number to the backward operator with the same."""
    forward: dict[int, Event] = {}
    backward: dict[int, Event] = {}
    for event in events:
        number = event.args.get("Sequence number")
        if number is None:
            continue
        if event.args.get("Fwd thread id"):
            backward.setdefault(number, event)
        else:
            forward[number] = event
    rows = []
    for link, number in enumerate(sorted(set(forward) & set(backward)), start=1):
        rows.append(_flow("s", forward[number], link, "fwdbwd", whole))
        rows.append(_flow("f", backward[number], link, "fwdbwd", whole))
    return rows


def _metadata(events: Iterable[Event], first: int, whole: bool) -> Iterable[dict[str, Any]]:
    at = _time(first, whole)

    def row(name: str, pid: Any, tid: Any, value: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "ph": "M", "ts": at, "pid": pid, "tid": tid, "args": value}

    for pid, label, index in ((PROCESS, "CPU", PROCESS), (0, "GPU 0", 5_000_000)):
        yield row("process_name", pid, 0, {"name": "python"})
        yield row("process_labels", pid, 0, {"labels": label})
        yield row("process_sort_index", pid, 0, {"sort_index": index})
    threads = sorted({(e.process, e.thread) for e in events if isinstance(e.thread, int)})
    for pid, tid in threads:
        name = f"stream {tid} " if pid == 0 else f"thread {tid} ({'pt_autograd_0' if tid == AUTOGRAD else 'python'})"
        yield row("thread_name", pid, tid, {"name": name})
        yield row("thread_sort_index", pid, tid, {"sort_index": tid})


def _ends(first: int, last: int, whole: bool) -> list[dict[str, Any]]:
    span = {"ph": "X", "cat": "Trace", "ts": _time(first, whole), "dur": _us(last - first, whole)}
    span |= {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}
    begin = {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces"}
    begin |= {"tid": "Trace PyTorch Profiler", "ts": _time(first, whole)}
    end = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": _time(last, whole)}
    return [span, begin, end]
