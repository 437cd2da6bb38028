"""The device: streams, copy engines and a launch queue. Says when an activity begins and ends.

Activities of a stream run in order. A kernel that fills the device excludes others that do on other streams; small
kernels, communication and copies run beside anything. Each direction has one copy engine.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from tests.synthetic.hardware import US, Gpu

QUEUE = 1022
"""Launches that can be outstanding before a launch call waits."""

GAP_NS = 1_000
"""From one activity to the next of its stream when that was waiting already."""


@dataclass(slots=True, eq=False)
class Activity:
    """What the device did.

    Attributes:
        kind: kernel, memcpy or memset.
        correlation: ties it to its call.
        args: what the trace says of it.
    """

    kind: str
    name: str
    stream: int
    start_ns: int
    end_ns: int
    correlation: int
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Device:
    """Streams and engines.

    Attributes:
        gpu: what it is.
        activities: all it did, in the order of submission.
        free: when each stream's last activity ends.
        barriers: when what a stream must wait for (events) is done.
    """

    gpu: Gpu
    activities: list[Activity] = field(default_factory=list)
    free: dict[int, int] = field(default_factory=dict)
    barriers: dict[int, int] = field(default_factory=dict)
    _full: tuple[int, int] = (0, 0)
    _engines: dict[str, int] = field(default_factory=dict)
    _pending: list[int] = field(default_factory=list)

    def accepts(self, now: int) -> int:
        """When a launch call that begins now finds room in the queue."""
        while self._pending and self._pending[0] <= now:
            heapq.heappop(self._pending)
        return now if len(self._pending) < QUEUE else heapq.nsmallest(len(self._pending) - QUEUE + 1, self._pending)[-1]

    def run(
        self,
        kind: str,
        name: str,
        stream: int,
        ready: int,
        dur_ns: int,
        correlation: int,
        engine: str | None = None,
        fills: bool = False,
    ) -> Activity:
        """Puts an activity on a stream.

        Args:
            kind: kernel, memcpy or memset.
            name: its name.
            stream: its stream.
            ready: when the device has heard of it.
            dur_ns: how long it takes.
            correlation: of its call.
            engine: copy engine that it needs.
            fills: it needs all multiprocessors.
        """
        start = max(ready, self.free.get(stream, -GAP_NS) + GAP_NS, self.barriers.get(stream, 0))
        if engine is not None:
            start = max(start, self._engines.get(engine, 0))
        if fills and self._full[0] != stream:
            start = max(start, self._full[1])
        end = start + dur_ns
        if engine is not None:
            self._engines[engine] = end
        if fills:
            self._full = (stream, end)
        self.free[stream] = end
        heapq.heappush(self._pending, end)
        made = Activity(kind, name, stream, start, end, correlation)
        self.activities.append(made)
        return made

    def idle_at(self, stream: int | None = None) -> int:
        """When everything that was launched (on one stream) is done."""
        if stream is not None:
            return max(self.free.get(stream, 0), self.barriers.get(stream, 0))
        return max(self.free.values(), default=0)

    def copy_ns(self, moved_bytes: int, pageable: bool) -> int:
        """How long a copy over the link takes."""
        rate = self.gpu.pageable_bytes_per_s if pageable else self.gpu.pinned_bytes_per_s
        return 1 * US + round(moved_bytes / rate * 1e9)
