"""What torch.profiler would have seen of a random program: a Kineto trace, the Profile of it, and ids in its tables."""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor.analysis.derive import derived
from gpudoctor.ingest import trace
from gpudoctor.profile import Profile
from tests.synthetic import kineto
from tests.synthetic.hardware import A100
from tests.synthetic.host import AUTOGRAD, MAIN, PROCESS, Event
from tests.synthetic.random_edits import Touched
from tests.synthetic.random_host import MadeCall, MadeOperator, Timeline
from tests.synthetic.random_programs import Happened

_CBID = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaGraphLaunch": 311, "cudaMemcpyAsync": 41,
    "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165, "cudaEventRecord": 135, "cudaStreamWaitEvent": 147,
    "cudaMalloc": 20, "cudaFree": 22, "cudaMemsetAsync": 51, "cudaEventSynchronize": 137,
}  # fmt: skip
"""CUPTI's callback ids."""

_SYNCS = {
    "cudaStreamSynchronize": "Stream Synchronize",
    "cudaDeviceSynchronize": "Context Synchronize",
    "cudaEventSynchronize": "Event Synchronize",
    "cudaStreamWaitEvent": "Stream Wait Event",
}
"""Names of the device's own records of synchronisations, with `enable_cuda_sync_events=True`."""

_SMALL_GRID, _FULL_GRID = 8, 4096
_NO_STREAM = -1
_LATE = 1_000_000  # External ids of ranges, above those of operators


def write(happened: Happened, path: Path, whole_us: bool = False) -> Path:
    """Writes the trace; `whole_us`: in whole microseconds, as torch did up to 2.2."""
    timeline = happened.timeline
    events = [*_ranges(timeline), *_operators(timeline), *_calls(timeline), *_activities(timeline)]
    if happened.program.recipe.sync_record and not whole_us:  # torch has them since 2.3
        events += _syncs(timeline)
    made = kineto.document(events, A100, whole_us=whole_us, stacks=False, shapes=False)
    return kineto.write(path, made)


def profile(happened: Happened, whole_us: bool = False) -> Profile:
    """The Profile as `gpudoctor analyze` would have it, by way of a trace."""
    with tempfile.TemporaryDirectory() as folder:
        return derived(trace.load(write(happened, Path(folder) / "trace.json", whole_us)))


# -- events ----------------------------------------------------------------------------------------------------------


def _ranges(timeline: Timeline) -> Iterator[Event]:
    """Steps and the optimizer's ranges."""
    for number, (start, end) in enumerate(timeline.steps):
        yield _range(f"ProfilerStep#{number}", start, end, _LATE + number)
    begun: tuple[str, int, int] | None = None
    for number, made in enumerate(timeline.operators):
        name = made.operator.inside
        if begun and begun[0] != name:
            yield _range(*begun, _LATE + 1000 + number)
            begun = None
        if name:
            begun = (name, begun[1] if begun else made.start_ns - 1, made.end_ns + 1)
    if begun:
        yield _range(*begun, _LATE + 1000 + len(timeline.operators))


def _range(name: str, start: int, end: int, number: int) -> Event:
    args = {"External id": number, "Record function id": 0}
    return Event("user_annotation", name, PROCESS, MAIN, start, end - start, args)


def _thread(made: MadeOperator) -> int:
    return AUTOGRAD if made.operator.backward else MAIN


def _operators(timeline: Timeline) -> Iterator[Event]:
    for number, made in enumerate(timeline.operators):
        names = made.operator.names
        category = "user_annotation" if made.operator.role == "loader" else "cpu_op"
        for level, name in enumerate(names):
            start = made.start_ns + made.operator.enter_ns * level // len(names)
            end = made.end_ns - made.operator.leave_ns * level // len(names)
            args = {"External id": _external(number, level), "Record function id": 0}
            yield Event(category, name, PROCESS, _thread(made), start, end - start, args)


def _external(operator: int, level: int) -> int:
    return 1 + 8 * operator + level


def _innermost(timeline: Timeline, call: MadeCall) -> dict[str, Any]:
    names = timeline.operators[call.operator].operator.names
    return {"External id": _external(call.operator, len(names) - 1)} if names else {}


def _calls(timeline: Timeline) -> Iterator[Event]:
    for made in timeline.calls:
        api, thread = made.call.api, _thread(timeline.operators[made.operator])
        args = _innermost(timeline, made) | {"cbid": _CBID[api], "correlation": made.correlation}
        yield Event("cuda_runtime", api, PROCESS, thread, made.start_ns, made.end_ns - made.start_ns, args)


def _activities(timeline: Timeline) -> Iterator[Event]:
    for activity in timeline.activities:
        work, call = activity.work, timeline.calls[activity.correlation - 1]
        args: dict[str, Any] = _innermost(timeline, call)
        args |= {"device": 0, "context": 1, "stream": work.stream, "correlation": activity.correlation}
        dur = activity.end_ns - activity.start_ns
        if work.kind == "kernel":
            blocks = _FULL_GRID if work.needs else _SMALL_GRID
            args |= {"queued": 0, "registers per thread": 64, "shared memory": 0, "block": [256, 1, 1]}
            args |= {"grid": [blocks, 1, 1]}
            if call.call.api == "cudaGraphLaunch":
                args |= {"graph id": 2, "graph node id": 100 + call.call.works.index(work)}
        else:
            args |= {"bytes": work.size_bytes, "memory bandwidth (GB/s)": work.size_bytes / dur}
        category = "kernel" if work.kind == "kernel" else f"gpu_{work.kind}"
        yield Event(category, work.name, 0, work.stream, activity.start_ns, dur, args)


def _syncs(timeline: Timeline) -> Iterator[Event]:
    records: dict[str, MadeCall] = {}
    for made in timeline.calls:
        call = made.call
        if call.api == "cudaEventRecord":
            records[call.mark] = made
        if (kind := _SYNCS.get(call.api)) is None:
            continue
        stream = _NO_STREAM if call.waits == "device" else call.stream
        args: dict[str, Any] = {"cuda_sync_kind": kind, "stream": stream, "correlation": made.correlation}
        args |= {"device": 0, "context": 1}
        if call.mark in records:
            record = records[call.mark]
            args |= {"wait_on_stream": record.call.stream, "wait_on_cuda_event_id": 1 + list(records).index(call.mark)}
            args |= {"wait_on_cuda_event_record_corr_id": record.correlation}
        yield Event("cuda_sync", kind, 0, stream, made.start_ns, made.end_ns - made.start_ns, args)


# -- ids -------------------------------------------------------------------------------------------------------------


def ids(edit: Touched, happened: Happened, seen: Profile) -> Touched:
    """The same edit in ids of the Profile's tables `ops` (outermost operators), `runtime_calls` and `kernels`."""
    timeline = happened.timeline
    ops, calls, kernels = _op_ids(timeline, seen), _call_ids(seen), _kernel_ids(timeline, seen)

    def some(numbers: Iterable[int], to: Mapping[int, int]) -> frozenset[int]:
        return frozenset(to[number] for number in numbers)

    return Touched(
        operators=some((number for number in edit.operators if timeline.operators[number].operator.names), ops),
        calls=some(edit.calls, calls),
        activities=some(edit.activities, kernels),
        durations_ns={kernels[number]: ns for number, ns in edit.durations_ns.items()},
        streams={kernels[number]: stream for number, stream in edit.streams.items()},
        released=some(edit.released, calls),
        free=some(edit.free, calls),
        moved=some(edit.moved, calls),
        ranges=some(edit.ranges, ops),
    )


def _op_ids(timeline: Timeline, seen: Profile) -> dict[int, int]:
    """Operators by thread, name and time; where a microsecond has several they are in order."""
    table = seen.table("ops")
    found: defaultdict[tuple[int, str, int], deque[int]] = defaultdict(deque)
    columns = [table[name].tolist() for name in ("thread", "name", "start_ns", "op")]
    for thread, name, start, op in zip(*columns, strict=True):
        found[thread, name, start // 1000].append(op)
    return {
        number: found[_thread(made), made.operator.names[0], made.start_ns // 1000].popleft()
        for number, made in enumerate(timeline.operators)
        if made.operator.names
    }


def _call_ids(seen: Profile) -> dict[int, int]:
    table = seen.table("runtime_calls")
    return dict(zip(table["correlation"].tolist(), table["call"].tolist(), strict=True))


def _kernel_ids(timeline: Timeline, seen: Profile) -> dict[int, int]:
    """Activities by the correlation of their launch; those of a graph's are in order."""
    table = seen.table("kernels").sort_values(["correlation", "start_ns", "kernel"])
    numbers = sorted(range(len(timeline.activities)), key=lambda n: (timeline.activities[n].correlation, n))
    return dict(zip(numbers, table["kernel"].tolist(), strict=True))
