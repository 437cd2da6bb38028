"""The shape of one trace event, as typed decoding wants it: what is not named here is skipped at full speed.

Field names are Kineto's (`output_json.cpp`) and those of torch's profiler (`collection.cpp`), of all versions since
torch 1.8: `external id` and `Input dims` are the old spellings.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, field

from gpudoctor.ingest.kineto.numbers import MISSING

NOTHING = Raw(b"")
"""Stands for a value that an event does not have, where the raw text is kept."""


class Args(msgspec.Struct, gc=False, kw_only=True):
    """What the readers need of an event's `args`. `Any`: a wrong type must not lose the event."""

    external: Any = field(name="External id", default=MISSING)
    external_old: Any = field(name="external id", default=MISSING)
    sequence: Any = field(name="Sequence number", default=MISSING)
    forward_thread: Any = field(name="Fwd thread id", default=MISSING)
    dims: Raw = field(name="Input Dims", default=NOTHING)
    dims_old: Raw = field(name="Input dims", default=NOTHING)
    types: Raw = field(name="Input type", default=NOTHING)
    concrete: Raw = field(name="Concrete Inputs", default=NOTHING)
    call_stack: Raw = field(name="Call stack", default=NOTHING)
    correlation: Any = MISSING
    device: Any = MISSING
    stream: Any = MISSING
    bytes: Any = MISSING
    bandwidth: Any = field(name="memory bandwidth (GB/s)", default=None)
    grid: Raw = NOTHING
    block: Raw = NOTHING
    registers: Any = field(name="registers per thread", default=MISSING)
    shared_memory: Any = field(name="shared memory", default=MISSING)
    occupancy: Any = field(name="est. achieved occupancy %", default=None)
    kind: Raw = NOTHING
    graph: Any = field(name="graph id", default=MISSING)
    graph_node: Any = field(name="graph node id", default=MISSING)
    collective: Any = field(name="Collective name", default=None)
    elements_in: Any = field(name="In msg nelems", default=MISSING)
    elements_out: Any = field(name="Out msg nelems", default=MISSING)
    group_size: Any = field(name="Group size", default=MISSING)
    dtype: Any = None
    group_name: Any = field(name="Process Group Name", default=None)
    group_description: Any = field(name="Process Group Description", default=None)
    group_ranks: Any = field(name="Process Group Ranks", default=None)
    sync_kind: Raw = field(name="cuda_sync_kind", default=NOTHING)
    waits_for_stream: Any = field(name="wait_on_stream", default=MISSING)
    waits_for_record: Any = field(name="wait_on_cuda_event_record_corr_id", default=MISSING)
    total_allocated: Any = field(name="Total Allocated", default=MISSING)
    total_reserved: Any = field(name="Total Reserved", default=MISSING)
    bytes_changed: Any = field(name="Bytes", default=MISSING)
    address: Any = field(name="Addr", default=MISSING)
    device_type: Any = field(name="Device Type", default=MISSING)
    device_id: Any = field(name="Device Id", default=MISSING)
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """One event. Times stay text: a float would lose nanoseconds."""

    ph: str = ""
    cat: str | None = ""
    name: str | None = ""
    pid: Any = None
    tid: Any = None
    ts: Raw = NOTHING
    dur: Raw = NOTHING
    id: Any = None
    args: Args | None = None


_ONE = msgspec.json.Decoder(Event)
BLOCK_DECODER = msgspec.json.Decoder(list[Event])
_LOOSE = msgspec.json.Decoder(dict[str, Any])
_ARGS_NAMES = {f.encode_name: f.name for f in msgspec.structs.fields(Args)}
_RAW_ARGS = frozenset(f.name for f in msgspec.structs.fields(Args) if f.type is Raw)


def decode(text: bytes) -> Event | None:
    """One event; None when the JSON is no event.

    Raises:
        msgspec.DecodeError: the text is no JSON.
    """
    try:
        return _ONE.decode(text)
    except msgspec.ValidationError:
        return _loosely(text)


def _loosely(text: bytes) -> Event | None:
    """An event some of whose values have a wrong type: those that fit are kept."""
    try:
        values = _LOOSE.decode(text)
    except msgspec.ValidationError:
        return None
    event = Event()
    for key in ("ph", "cat", "name"):
        value = values.get(key)
        if value is not None:
            setattr(event, key, value if isinstance(value, str) else str(value))
    event.pid, event.tid, event.id = values.get("pid"), values.get("tid"), values.get("id")
    for key in ("ts", "dur"):
        if values.get(key) is not None:
            setattr(event, key, Raw(msgspec.json.encode(values[key])))
    given = values.get("args")
    if isinstance(given, dict):
        event.args = Args()
        for key, value in given.items():
            if key in _ARGS_NAMES:
                name = _ARGS_NAMES[key]
                setattr(event.args, name, Raw(msgspec.json.encode(value)) if name in _RAW_ARGS else value)
    return event if event.ph or event.dur != NOTHING else None
