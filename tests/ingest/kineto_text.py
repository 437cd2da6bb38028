"""Traces as text for the tests that damage them, and what is in them, found without the reader under test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.ingest.kineto import Trace
from gpudoctor.ingest.kineto.blocks import Blocks, Damage
from gpudoctor.ingest.kineto.events import GROUPS
from gpudoctor.ingest.kineto.numbers import MISSING
from gpudoctor.ingest.kineto.records import Event
from gpudoctor.ingest.kineto.source import Source

CPU_STEP = Path(__file__).parent / "data" / "cpu_step.json"
"""A training step of one linear layer, recorded by torch.profiler on a CPU with shapes and stacks; some of the Python
frames and operators were taken out, the text of the others is as it was written."""

Row = tuple[Any, ...]


def cpu_step() -> str:
    """The text of `CPU_STEP`."""
    return CPU_STEP.read_text(encoding="utf-8")


def gpu_events() -> list[dict[str, Any]]:
    """Made-up events of every kind that a GPU step has; names hold what readers trip over."""
    base = 5205240880977.589
    made: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "ts": 0, "pid": 7, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "ts": 0, "pid": 7, "tid": 70, "args": {"name": "thread 70"}},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 7, "tid": 70, "ts": base, "dur": 900.5},
    ]
    for number in range(4):
        at, link = base + 100 * number, {"External id": number + 1, "correlation": 40 + number}
        made += [
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": 'aten::mm {"x"}, {é}\\',
                "pid": 7,
                "tid": 70,
                "ts": at + 1.25,
                "dur": 50.125,
                "args": {
                    "External id": number + 1,
                    "Sequence number": number,
                    "Fwd thread id": 0,
                    "Input Dims": [[64, 64], [64, 64]],
                    "Input type": ["float", "float"],
                    "Concrete Inputs": ["", ""],
                },
            },
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 7,
                "tid": 70,
                "ts": at + 10,
                "dur": 5.001,
                "args": link,
            },
            {"ph": "s", "id": 40 + number, "pid": 7, "tid": 70, "ts": at + 10, "cat": "ac2g", "name": "ac2g"},
            {
                "ph": "X",
                "cat": "kernel",
                "name": "void gemm<float, 128>(T*, T*) [clone }, {]",
                "pid": 0,
                "tid": 7,
                "ts": at + 20.007,
                "dur": 30,
                "args": {
                    **link,
                    "device": 0,
                    "stream": 7,
                    "registers per thread": 64,
                    "shared memory": 4096,
                    "grid": [8, 8, 1],
                    "block": [128, 1, 1],
                    "est. achieved occupancy %": 37,
                },
            },
            {
                "ph": "f",
                "id": 40 + number,
                "pid": 0,
                "tid": 7,
                "ts": at + 20.007,
                "cat": "ac2g",
                "name": "ac2g",
                "bp": "e",
            },
        ]
    made += [
        {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": "Memcpy HtoD (Pageable -> Device)",
            "pid": 0,
            "tid": 7,
            "ts": base + 500,
            "dur": 12.5,
            "args": {"device": 0, "stream": 7, "correlation": 90, "bytes": 4096, "memory bandwidth (GB/s)": 0.33},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "pid": 0,
            "tid": 20,
            "ts": base + 520,
            "dur": 80.25,
            "args": {
                "device": 0,
                "stream": 20,
                "correlation": 91,
                "Collective name": "allreduce",
                "In msg nelems": 1000,
                "Out msg nelems": 1000,
                "Group size": 8,
                "dtype": "Float",
                "Process Group Name": "0",
                "Parts": [{"rank": 0, "nelems": 500}, {"rank": 1, "nelems": 500}, {"deep": [{"a": 1}, {"b": 2}]}],
            },
        },
        {
            "ph": "i",
            "s": "t",
            "name": "[memory]",
            "pid": 7,
            "tid": 70,
            "ts": base + 600,
            "args": {
                "Total Reserved": 2097152,
                "Total Allocated": 512,
                "Bytes": 512,
                "Addr": 140245,
                "Device Id": 0,
                "Device Type": 1,
            },
        },
        {
            "ph": "X",
            "cat": "cuda_sync",
            "name": "Stream Synchronize",
            "pid": 0,
            "tid": 7,
            "ts": base + 610,
            "dur": 4,
            "args": {"cuda_sync_kind": "Stream Synchronize", "stream": 7, "correlation": 95, "device": 0},
        },
        {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": base, "dur": 9},
    ]
    return made


HEAD = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}, {"id": 1, "name": "GPU"}], "world": 8}


def document(events: list[dict[str, Any]], *, indent: int | None = 2, head: dict[str, Any] | None = None) -> str:
    """A trace's text with its events last but one, as Kineto writes it."""
    whole = {**(HEAD if head is None else head), "traceEvents": events, "traceName": "trace.json"}
    return json.dumps(whole, indent=indent, ensure_ascii=False)


def gpu_step(indent: int | None = 2) -> str:
    """The text of a trace of `gpu_events`."""
    return document(gpu_events(), indent=indent)


class Text(Source):
    """A source that is no file."""

    def __init__(self, data: bytes, piece_bytes: int = 1 << 20) -> None:
        super().__init__(Path("memory.json"))
        self._data, self._piece = data, piece_bytes

    def __iter__(self) -> Iterator[bytes]:
        for at in range(0, len(self._data), self._piece):
            piece = self._data[at : at + self._piece]
            self.raw_bytes += len(piece)
            yield piece


def plain(value: Any) -> Any:
    """An event, or a part of it, as something that can be compared."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return tuple(plain(getattr(value, name)) for name in value.__struct_fields__)
    return repr(value)


def decoded(data: bytes, block_bytes: int = 4 << 20) -> tuple[list[Any], Damage, dict[str, Any]]:
    """The events of a text in order, what was lost, and the metadata."""
    blocks = Blocks(Text(data), block_bytes)
    events = [plain(event) for block in blocks for event in block]
    return events, blocks.damage, blocks.metadata


def structs(data: bytes, block_bytes: int = 4 << 20) -> tuple[list[Event], Damage]:
    """As `decoded`, faster."""
    blocks = Blocks(Text(data), block_bytes)
    return [event for block in blocks for event in block], blocks.damage


def spans(text: str) -> list[tuple[int, int]]:
    """Where each event of an undamaged trace begins and ends, in characters."""
    decoder, found = json.JSONDecoder(), []
    at = text.index("[", text.index('"traceEvents"')) + 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return found
        _, end = decoder.raw_decode(text, at)
        found.append((at, end))
        at = end


def rows(trace: Trace) -> Counter[Row]:
    """Every row of every table with its codes resolved: what a trace says, whatever the order."""
    columns = trace.columns
    looked_up = {"name": list(columns.names), "thread": list(columns.threads), "category": list(columns.categories)}
    texts = list(columns.texts)
    made: Counter[Row] = Counter()
    for group, table in trace.tables.items():
        shown = []
        for name, column in table.columns.items():
            if name in looked_up:
                values: list[Any] = [looked_up[name][code] for code in column.tolist()]
            elif name in _TEXTS:
                values = [None if code < 0 else texts[code] for code in column.tolist()]
            else:
                values = [None if v in (MISSING, None) or v != v else v for v in column.tolist()]  # noqa: PLR0124
            shown.append([(name, repr(value)) for value in values])
        said = columns.collectives.get(group, {})
        for row, cells in enumerate(zip(*shown, strict=True)):
            made[(group, *cells, repr(said.get(row)))] += 1
    return made


_TEXTS = ("dims", "types", "concrete", "call_stack", "grid", "block", "kind", "sync_kind")


def stated(trace: Trace) -> bool:
    """Whether the trace says that something in it was lost or repaired."""
    return said(trace.damage) or bool(trace.columns.no_time or trace.columns.no_duration)


def said(damage: Damage) -> bool:
    """Whether anything was lost or repaired."""
    return damage != Damage()


_INTS = {
    "ops": {"external": ("External id", "external id"), "sequence": ("Sequence number",)},
    "runtime": {"correlation": ("correlation",)},
    "device": {"correlation": ("correlation",), "stream": ("stream",), "bytes": ("bytes",), "device": ("device",)},
}


def expected(text: str) -> Counter[Row] | None:
    """What a text says by Python's JSON reader, in exact numbers; None when it is no JSON or an odd event is in it.

    Rows of (group, category, name, pid, tid, start_ns, dur_ns, integers of args) for complete events.
    """
    try:
        whole = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    events = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(events, list):
        return None
    made: Counter[Row] = Counter()
    for event in events:
        if not isinstance(event, dict) or not isinstance(event.get("ph"), str) or event["ph"] in ("", "B", "E"):
            return None
        if event["ph"] == "X":
            row = _row(event)
            if row is None:
                return None
            made[row] += 1
    return made


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _row(event: dict[str, Any]) -> Row | None:
    args = event.get("args", {})
    texts = (event.get("cat", ""), event.get("name", ""))
    if not all(isinstance(text, str) for text in texts) or not isinstance(args, dict):
        return None
    times = [_exact(event.get(key)) for key in ("ts", "dur")]
    if None in times:
        return None
    group = GROUPS.get(texts[0].lower(), "other")
    ints = []
    for name, spellings in _INTS.get(group, {}).items():
        value = next((args[spelling] for spelling in spellings if spelling in args), None)
        if not (value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)):
            return None
        ints.append((name, value))
    threads = [float(value) if isinstance(value, Decimal) else value for value in (event.get("pid"), event.get("tid"))]
    return (group, *texts, *map(repr, threads), *times, *ints)


def _exact(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not abs(value) < 2**53:
        return None
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def found(trace: Trace) -> Counter[Row]:
    """What the reader made of a trace, in the rows of `expected`."""
    columns = trace.columns
    names, threads, categories = list(columns.names), list(columns.threads), list(columns.categories)
    made: Counter[Row] = Counter()
    for group, table in trace.tables.items():
        if "category" not in table.columns:  # flows and instants
            continue
        given = {name: column.tolist() for name, column in table.columns.items()}
        for row in range(len(table)):
            pid, tid = threads[given["thread"][row]]
            ints = [(name, None if given[name][row] == MISSING else given[name][row]) for name in _INTS.get(group, {})]
            made[
                (
                    group,
                    categories[given["category"][row]],
                    names[given["name"][row]],
                    repr(pid),
                    repr(tid),
                    given["start_ns"][row],
                    given["dur_ns"][row],
                    *ints,
                )
            ] += 1
    return made
