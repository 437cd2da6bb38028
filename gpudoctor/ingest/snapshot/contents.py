"""An allocator snapshot as columns: what the file says, nothing worked out yet."""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.errors import InputError
from gpudoctor.ingest.snapshot import unpickler

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "free",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
"""What the allocator records, torch 1.13 to 2.13; `free` stood for both halves of a release before 2.1."""
STATES = ("active_allocated", "active_pending_free", "inactive")
"""States of a block. A tensor holds it; it was released and another stream may still use it; it is free."""
_AWAITING = "active_awaiting_free"  # what torch's documentation calls the second; files have had both names
_CODES = {name: code for code, name in enumerate(ACTIONS)}
_STATE_CODES = {name: code for code, name in enumerate(STATES)} | {_AWAITING: 1}
_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"
_LIMIT, _REQUEST_LIMIT = 1 << 44, 1 << 63
"""Bytes that no GPU has, so that sums stay in 64 bits; a request that failed may have been for more."""
_LATEST = 1 << 52  # microseconds: the year 2112
_DEVICES, _LONG_KEY = 1 << 15, 12
HOW = "write it with `torch.cuda.memory._dump_snapshot(path)`"

Frame = tuple[str, int, str]
"""A call: file, line and function."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What the allocators did, one entry each, in order within a device.

    Attributes:
        device: GPU index.
        action: place in `ACTIONS`.
        address, bytes, stream: as recorded; 0 where an action has none.
        time_us: microseconds of the Unix clock, 0 where the version records none.
        stack: row in `Contents.stacks`, -1 for none.
        device_free: for an out-of-memory error, by entry: bytes that the device had left then.
    """

    device: NDArray[np.int64]
    action: NDArray[np.int64]
    address: NDArray[np.int64]
    bytes: NDArray[np.int64]
    stream: NDArray[np.int64]
    time_us: NDArray[np.int64]
    stack: NDArray[np.int64]
    device_free: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of all segments; columns of equal length.

    Attributes:
        segment: row in `Contents.segments`.
        address, size, requested: in bytes; `requested` is what was asked for before rounding, -1 where not known.
        state: place in `STATES`.
        stack: row in `Contents.stacks`, -1 for none.
    """

    segment: NDArray[np.int64]
    address: NDArray[np.int64]
    size: NDArray[np.int64]
    requested: NDArray[np.int64]
    state: NDArray[np.int64]
    stack: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Contents:
    """A snapshot.

    Attributes:
        segments: one mapping each as in the file, without its blocks.
        blocks: their blocks.
        trace: what the allocators did while the history was recorded.
        stacks: the different call stacks, innermost call first.
        settings: the allocator's settings by name; empty before torch 2.0.
        annotations: ranges of the profiler, `{name, stage, device, time_us}`.
    """

    segments: Sequence[Mapping[str, Any]]
    blocks: Blocks
    trace: Trace
    stacks: Sequence[tuple[Frame, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    annotations: Sequence[Mapping[str, Any]] = ()


def is_snapshot(path: Path) -> bool:
    """Whether a file begins as a pickle does (protocol 2 or later), plain or gzip."""
    with path.open("rb") as file:
        head = file.read(2)
    if head == _GZIP:
        try:
            with gzip.open(path) as inner:
                head = inner.read(2)
        except (OSError, EOFError, zlib.error):
            return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def read(path: Path) -> Contents:
    """Reads a snapshot.

    Raises:
        InputError: the file cannot be read, is no snapshot, or wants code to be run.
    """
    try:
        data = path.read_bytes()
        if data[:2] == _GZIP:
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if data[:4] == _ZIP:
        raise InputError(f"{path}: a zip archive, as torch.save writes; a memory snapshot is a plain pickle: {HOW}")
    collector = _Collector()
    try:
        root = unpickler.load(data, collector.take)
        return collector.contents(root)
    except unpickler.UnpicklingError as error:
        raise InputError(f"{path}: not a memory snapshot: {error}; {HOW}") from None
    except _ShapeError as error:
        raise InputError(f"{path}: not a memory snapshot: {error}; {HOW}") from None


class _ShapeError(Exception):
    """The data is none that torch writes."""


class _Entry(int):
    """Stands in the tree for an entry of the trace, whose values went into row so many of the columns."""

    __slots__ = ()


class _Block(int):
    """The same for a block."""

    __slots__ = ()


class _Collector:
    """Takes entries and blocks out of the pickle as they come."""

    def __init__(self) -> None:
        self._entries = [array("q") for _ in range(6)]  # action, address, bytes, stream, time, stack
        self._blocks = [array("q") for _ in range(5)]  # address, size, requested, state, stack
        self._device_free: dict[int, int] = {}
        self._stacks: list[tuple[Frame, ...]] = []
        self._by_content: dict[tuple[Frame, ...], int] = {}
        self._by_list: dict[int, tuple[int, list[Any]]] = {}  # the list is kept, so that its id is not used again
        self._frames: dict[int, tuple[Frame, Mapping[str, Any]]] = {}

    def take(self, filled: dict[Any, Any]) -> Any:
        """A row in place of an entry or a block; everything else stays."""
        if "action" in filled:
            return self._entry(filled)
        if "state" in filled and "size" in filled:
            return self._block(filled)
        return filled

    def _entry(self, filled: Mapping[str, Any]) -> _Entry:
        action = filled["action"]
        code = _CODES.get(action, -1) if isinstance(action, str) else -1
        if code < 0:
            raise _ShapeError(f"an entry with the action {_text(action)[:40]!r}")
        row = len(self._entries[0])
        frames = filled.get("frames")
        actions, addresses, sizes, streams, times, stacks = self._entries
        try:
            actions.append(code)
            addresses.append(_address(filled.get("addr", 0)))
            sizes.append(_size(filled.get("size", 0), _REQUEST_LIMIT if filled["action"] == "oom" else _LIMIT))
            streams.append(_address(filled.get("stream", 0)))
            times.append(_time(filled.get("time_us", 0)))
            stacks.append(self._stack(frames) if frames else -1)
            if "device_free" in filled:
                self._device_free[row] = _size(filled["device_free"])
        except (TypeError, OverflowError, ValueError) as error:
            raise _ShapeError(f"entry {row} of the trace has a value that is none ({error})") from None
        return _Entry(row)

    def _block(self, filled: Mapping[str, Any]) -> _Block:
        row = len(self._blocks[0])
        history = filled.get("history") or ()  # torch 1.13 and 2.0: the frames lay one level deeper
        last = history[0] if isinstance(history, list) and history and isinstance(history[0], Mapping) else {}
        frames = filled.get("frames") or last.get("frames")
        addresses, sizes, requested, states, stacks = self._blocks
        try:
            addresses.append(_address(filled.get("address", -1)))
            sizes.append(_size(filled["size"]))
            requested.append(_size(filled.get("requested_size", -1), least=-1))
            states.append(_state(filled["state"]))
            stacks.append(self._stack(frames) if frames else -1)
        except (TypeError, OverflowError, ValueError) as error:
            raise _ShapeError(f"block {row} has a value that is none ({error})") from None
        return _Block(row)

    def _stack(self, frames: Any) -> int:
        known = self._by_list.get(id(frames))
        if known is not None:
            return known[0]
        if not isinstance(frames, list):
            raise _ShapeError("a call stack that is no list")
        stack = tuple(map(self._frame, frames))
        row = self._by_content.setdefault(stack, len(self._stacks))
        if row == len(self._stacks):
            self._stacks.append(stack)
        self._by_list[id(frames)] = (row, frames)
        return row

    def _frame(self, frame: Any) -> Frame:
        known = self._frames.get(id(frame))
        if known is not None:
            return known[0]
        if not isinstance(frame, Mapping):
            raise _ShapeError("a call that is no mapping")
        line = frame.get("line")
        number = line if isinstance(line, int) and 0 <= line < 1 << 31 else 0
        made = (_text(frame.get("filename")), number, _text(frame.get("name")))
        self._frames[id(frame)] = (made, frame)
        return made

    def contents(self, root: Any) -> Contents:
        """Everything, once the pickle has ended.

        Raises:
            _ShapeError: the tree is not that of a snapshot.
        """
        if isinstance(root, list):  # what `torch.cuda.memory_snapshot()` returns: segments only
            root = {"segments": root}
        if not isinstance(root, dict) or not isinstance(root.get("segments"), list):
            raise _ShapeError("it has no segments")
        segments, rows, owners = [], [], []
        for place, segment in enumerate(root["segments"]):
            if not isinstance(segment, dict) or not isinstance(segment.get("blocks", []), list):
                raise _ShapeError(f"segment {place} is no mapping with blocks")
            own = segment.get("blocks", [])
            if not all(isinstance(row, _Block) for row in own):
                raise _ShapeError(f"segment {place} has a block without state and size")
            rows += own
            owners += [place] * len(own)
            segments.append(_segment(place, segment))
        traces = root.get("device_traces") or []
        if not isinstance(traces, list) or not all(isinstance(trace, list) for trace in traces):
            raise _ShapeError("device_traces is no list of lists")
        settings, annotations = root.get("allocator_settings"), root.get("external_annotations")
        return Contents(
            segments,
            self._all_blocks(segments, rows, owners),
            self._trace(traces),
            self._stacks,
            _plain(settings),
            [_plain(each) for each in annotations if isinstance(each, dict)] if isinstance(annotations, list) else [],
        )

    def _trace(self, traces: Sequence[Sequence[Any]]) -> Trace:
        order, devices = [], []
        for number, trace in enumerate(traces):
            if not all(isinstance(row, _Entry) for row in trace):
                raise _ShapeError("an entry of the trace without an action")
            order.append(np.array(trace, dtype=np.int64))
            devices.append(np.full(len(trace), number, dtype=np.int64))
        rows = np.concatenate(order) if order else np.empty(0, np.int64)
        device = np.concatenate(devices) if devices else np.empty(0, np.int64)
        columns = [np.frombuffer(column, dtype=np.int64)[rows] if column else rows for column in self._entries]
        place = {int(row): at for at, row in enumerate(rows)} if self._device_free else {}
        free = {place[row]: left for row, left in self._device_free.items() if row in place}
        action, address, size, stream, time, stack = columns
        return Trace(device, action, address, size, stream, time, stack, free)

    def _all_blocks(self, segments: Sequence[Mapping[str, Any]], rows: Sequence[int], owners: Sequence[int]) -> Blocks:
        order, segment = np.array(rows, dtype=np.int64), np.array(owners, dtype=np.int64)
        columns = [np.frombuffer(column, dtype=np.int64)[order] if column else order for column in self._blocks]
        address, size, requested, state, stack = columns
        return Blocks(segment, _placed(address, size, segment, segments), size, requested, state, stack)


def _placed(
    address: NDArray[np.int64], size: NDArray[np.int64], segment: NDArray[np.int64], segments: Sequence[Any]
) -> NDArray[np.int64]:
    """The blocks' addresses; those that a file leaves out follow from the sizes before them (torch up to 2.0)."""
    if not len(address) or (address >= 0).all():
        return address
    starts = np.array([_address(each.get("address", 0)) for each in segments], dtype=np.int64)
    before = np.cumsum(size) - size
    first = np.searchsorted(segment, segment)  # the first block of each block's segment
    return np.where(address >= 0, address, starts[segment] + before - before[first])


def _address(value: Any) -> int:
    """An address or stream as a signed number of 64 bits."""
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        raise ValueError("an address or stream that is no number of 64 bits")
    return value if value < 1 << 63 else value - (1 << 64)


def _size(value: Any, limit: int = _LIMIT, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value < limit:
        raise ValueError("a size that is no number of bytes")
    return value


def _time(value: Any) -> int:
    """A time that is none counts as not recorded."""
    return value if isinstance(value, int) and 0 <= value < _LATEST else 0


def _state(value: Any) -> int:
    text = _text(value)
    return _STATE_CODES.get(text, 1 if "active" in text.replace("inactive", "") else 2)


def _text(value: Any) -> str:
    """A text that every output can write; containers have none, as one that repeats itself would never end."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return str(value) if isinstance(value, (int, float)) else ""


def _segment(place: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is used of a segment, each value of the kind that torch writes."""
    try:
        total = given.get("total_size")
        if not isinstance(total, int) or isinstance(total, bool):
            raise _ShapeError(f"segment {place} has no total_size")
        _size(total)
        device = given.get("device", 0)
        if not isinstance(device, int) or not 0 <= device < _DEVICES:
            raise ValueError("a device that is no index")
        pool = given.get("segment_pool_id")
        plain = isinstance(pool, (tuple, list)) and all(isinstance(part, int) for part in pool)
        return {
            "total_size": total,
            "device": device,
            "address": _address(given.get("address", 0)),
            "stream": _address(given.get("stream", 0)),
            "segment_type": _text(given.get("segment_type")),
            "segment_pool_id": tuple(pool or ()) if plain and isinstance(pool, (tuple, list)) else (0, 0),
            "is_expandable": given.get("is_expandable") is True,
        }
    except ValueError as error:
        raise _ShapeError(f"segment {place} has {error}") from None


def _plain(given: Any) -> dict[str, Any]:
    """The plain values of a mapping by name, and of mappings in it those that are numbers by number."""
    if not isinstance(given, dict):
        return {}
    made: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(name, str) and isinstance(value, (str, int, float)):
            made[name] = value
        elif isinstance(name, str) and isinstance(value, dict):
            made[name] = {key: each for key, each in value.items() if _digits(key) and isinstance(each, int)}
    return made


def _digits(key: Any) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < _LONG_KEY)
