"""What the page shows of a GPU's memory: a bar by category, the curve, the map of segments, and the tables."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from gpudoctor.diagnosis import DeviceMemory, Memory, SegmentUse
from gpudoctor.reporters import memory_words, prose
from gpudoctor.reporters.memory_words import Row
from gpudoctor.units import format_bytes, format_ns, plural

COLOURS = {
    "parameters": 2,
    "gradients": 3,
    "optimizer state": 4,
    "activations": 1,
    "inputs": 6,
    "temporaries": 5,
    "workspaces": 7,
    "other": 8,
}
"""Colours of the page by category."""

_WIDEST, _NARROWEST = 150, 10
"""Pixels of the largest segment in the map, and of the smallest that can still be pointed at."""
_CURVE_HEIGHT = 120


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the category bar: place and width in per cent."""

    x: str
    width: str
    colour: int
    row: Row


@dataclass(frozen=True, slots=True)
class Box:
    """One kind of segment in the map: its width in pixels, what is in use as (x, width, tenths), and its words."""

    width: str
    cells: tuple[tuple[str, str, int], ...]
    title: str
    times: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory in use over time as the points of a polygon in a box of 1000 by `height`, and its words."""

    points: str
    height: int
    peak: str
    span: str


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One GPU's part of the section."""

    words: str
    advice: Markup
    parts: tuple[Part, ...]
    peak: tuple[Row, ...]
    kept: tuple[Row, ...]
    replays: tuple[Row, ...]
    replay_note: str
    boxes: tuple[Box, ...]
    boxes_left: str
    curve: Curve | None


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The section: its titles and one part a GPU."""

    title: str
    peak_title: str
    inferred: bool
    devices: tuple[DeviceView, ...]


def memory_view(memory: Memory | None) -> MemoryView | None:
    """The section; None without an allocator snapshot."""
    if memory is None or not memory.devices:
        return None
    views = tuple(_device(memory, device) for device in memory.devices)
    return MemoryView(memory_words.TITLE, memory_words.peak_title(memory), memory.inferred, views)


def _device(memory: Memory, device: DeviceMemory) -> DeviceView:
    number = device.device
    segments = [segment for segment in memory.segments if segment.device == number]
    shown = sum(segment.count for segment in segments)
    largest = max((segment.bytes for segment in segments), default=1) or 1
    size = sum(segment.bytes * segment.count for segment in segments)
    left = "" if size >= device.reserved_bytes else f"{format_bytes(device.reserved_bytes - size)} in more segments"
    return DeviceView(
        words=memory_words.device_words(device, len(memory.devices) > 1),
        advice=prose.inline(memory_words.advice(memory, device)),
        parts=_parts(memory_words.by_category(memory, number)),
        peak=memory_words.peak_rows(memory, number),
        kept=memory_words.kept_rows(memory, number),
        replays=memory_words.replay_rows(memory.replays, device),
        replay_note=memory_words.replay_note(memory.replays, device),
        boxes=tuple(_box(segment, largest) for segment in segments) if shown else (),
        boxes_left=left,
        curve=_curve(memory, number),
    )


def _parts(rows: tuple[Row, ...]) -> tuple[Part, ...]:
    made, reached = [], 0.0
    for row in rows:
        made.append(Part(f"{100 * reached:.3f}%", f"{100 * row.part:.3f}%", COLOURS.get(row.name, 8), row))
        reached += row.part
    return tuple(made)


def _box(segment: SegmentUse, largest: int) -> Box:
    """Width by the square root of the size: the largest are a thousand times the smallest."""
    width = max(_NARROWEST, _WIDEST * (segment.bytes / largest) ** 0.5)
    step = width / max(1, len(segment.fill))
    cells, start = [], 0
    for place in range(1, len(segment.fill) + 1):
        if place == len(segment.fill) or segment.fill[place] != segment.fill[start]:
            level = int(segment.fill[start])
            if level:
                cells.append((f"{start * step:.1f}", f"{(place - start) * step:.1f}", level))
            start = place
    free = segment.bytes - segment.live_bytes
    what = f"{plural(segment.count, 'segment')} of {format_bytes(segment.bytes)}"
    title = f"{what}: {format_bytes(segment.live_bytes)} in use, {format_bytes(free)} free"
    return Box(f"{width:.1f}", tuple(cells), title, f"×{segment.count}" if segment.count > 1 else "")


def _curve(memory: Memory, device: int) -> Curve | None:
    readings = [reading for reading in memory.curve if reading.device == device]
    if len(readings) < 2 or readings[-1].time_ns <= readings[0].time_ns:
        return None
    first, span = readings[0].time_ns, readings[-1].time_ns - readings[0].time_ns
    most = max(reading.allocated_bytes for reading in readings) or 1
    points = [f"0,{_CURVE_HEIGHT}"]
    for reading in readings:
        x = 1000 * (reading.time_ns - first) / span
        points.append(f"{x:.1f},{_CURVE_HEIGHT * (1 - reading.allocated_bytes / most):.1f}")
    points.append(f"1000,{_CURVE_HEIGHT}")
    return Curve(" ".join(points), _CURVE_HEIGHT, format_bytes(most), format_ns(span))
