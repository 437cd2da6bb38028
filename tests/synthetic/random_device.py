"""A device whose streams compete in time: what random programs launch on.

Other than `device.py`, which settles an activity when it is launched, this one plays all streams event by event: work
of a stream that was filled late can run between the queued work of another.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

QUEUE = 1022
"""Launches that can be outstanding before a launch call waits: the channel's ring has 1,024 entries."""

MULTIPROCESSORS, TO_DEVICE, TO_HOST = "multiprocessors", "h2d", "d2h"
"""What one activity at a time can have: all multiprocessors, or the copy engine of one direction."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One activity as the program asks for it, with the noise it was dealt.

    Attributes:
        key: number in its program; stays when other work is taken out.
        kind: kernel, memcpy or memset.
        name: as CUPTI shows it.
        stream: stream that it is launched on.
        dur_ns: how long it runs.
        latency_ns: from the launch to when the device could begin it.
        gap_ns: from the end of the stream's activity before to its own begin, at least.
        needs: what it must have for itself; None for small kernels, communication and copies within the device.
        size_bytes: of a copy.
        late_ns: how long a collective waits for the last rank; part of its duration in a trace, not of `dur_ns`.
        matrix: it is a matrix product.
    """

    key: int
    kind: str
    name: str
    stream: int
    dur_ns: int
    latency_ns: int
    gap_ns: int
    needs: str | None = None
    size_bytes: int = 0
    late_ns: int = 0
    matrix: bool = False


@dataclass(slots=True, eq=False)
class Activity:
    """Work that was launched; -1 for what has not happened.

    Attributes:
        work: what it is.
        correlation: of the call that launched it.
        ready_ns: when the device could begin it, were it idle.
        closes: the last of its launch: when it is done the launch is no longer outstanding.
    """

    work: Work
    correlation: int
    ready_ns: int
    closes: bool = True
    start_ns: int = -1
    end_ns: int = -1


@dataclass(slots=True, eq=False)
class Mark:
    """An event: done when all that its stream had before it is done; None while it is not."""

    done_ns: int | None = None
    waiting: list[Stream] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A stream's wait for an event, which takes a little after that."""

    mark: Mark
    delay_ns: int


@dataclass(slots=True, eq=False)
class Stream:
    """A queue in order.

    Attributes:
        queue: activities, events and waits that have not begun, and when the device knows of each.
        free_ns: when its last activity ended.
        barrier_ns: when the events it has waited for let it go on.
        running: its activity that runs.
        held: it waits in some list, and goes on when it is called from there.
    """

    number: int
    queue: deque[tuple[Activity | Mark | Wait, int]] = field(default_factory=deque)
    free_ns: int = -1
    barrier_ns: int = 0
    running: Activity | None = None
    held: bool = False


class Device:
    """Plays what it is given, as far as it is asked to.

    Its clock lags behind the host's: everything launched until `now` must have been submitted before `advance(now)`.

    Attributes:
        activities: all, in the order of their launches.
        outstanding: launches that are not done by its clock.
    """

    def __init__(self) -> None:
        self.now = 0
        self.activities: list[Activity] = []
        self.outstanding = 0
        self._streams: dict[int, Stream] = {}
        self._happening: list[tuple[int, int, Stream, Activity | None]] = []
        self._count = 0
        self._taken: set[str] = set()
        self._wanting: dict[str, deque[Stream]] = {MULTIPROCESSORS: deque(), TO_DEVICE: deque(), TO_HOST: deque()}

    # -- what the host gives it --------------------------------------------------------------------------------------

    def submit(self, works: tuple[Work, ...], correlation: int, at_ns: int) -> None:
        """One launch of one activity, or of a graph's many: the first is heard of last, the others follow it."""
        first = works[0]
        self.outstanding += 1
        for work in works:
            activity = Activity(work, correlation, at_ns + first.latency_ns, work is works[-1])
            self.activities.append(activity)
            self._append(work.stream, activity, activity.ready_ns)

    def record(self, stream: int, at_ns: int) -> Mark:
        """An event behind all that the stream has."""
        mark = Mark()
        self._append(stream, mark, at_ns)
        return mark

    def wait(self, stream: int, mark: Mark, delay_ns: int, at_ns: int) -> None:
        """What the stream gets from now on waits for the event."""
        self._append(stream, Wait(mark, delay_ns), at_ns)

    def streams(self) -> list[int]:
        """Streams that were ever used."""
        return list(self._streams)

    # -- what the host waits for -------------------------------------------------------------------------------------

    def room(self, now: int) -> int:
        """When a launch call that begins now finds room in the queue."""
        if self.outstanding < QUEUE:
            return now
        self.advance(now)
        while self.outstanding >= QUEUE:
            self._next()
        return max(now, self.now)

    def finish(self, mark: Mark) -> int:
        """When the event is done."""
        while mark.done_ns is None:
            self._next()
        return mark.done_ns

    def advance(self, until_ns: int) -> None:
        """Plays until that time."""
        while self._happening and self._happening[0][0] <= until_ns:
            self._next()

    def drain(self) -> int:
        """Plays to the end, and says when that was."""
        while self._happening:
            self._next()
        return max((stream.free_ns for stream in self._streams.values()), default=0)

    # -- how it goes on ----------------------------------------------------------------------------------------------

    def _append(self, number: int, item: Activity | Mark | Wait, ready_ns: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams[number] = Stream(number)
        stream.queue.append((item, ready_ns))
        if stream.running is None and len(stream.queue) == 1:
            self._at(ready_ns, stream)

    def _at(self, time_ns: int, stream: Stream, done: Activity | None = None) -> None:
        self._count += 1
        heapq.heappush(self._happening, (time_ns, self._count, stream, done))

    def _next(self) -> None:
        self.now, _, stream, done = heapq.heappop(self._happening)
        if done is not None:
            self._end(stream, done)
        self._go_on(stream)

    def _end(self, stream: Stream, activity: Activity) -> None:
        activity.end_ns = stream.free_ns = self.now
        stream.running = None
        self.outstanding -= activity.closes
        needs = activity.work.needs
        if needs is None:
            return
        self._taken.discard(needs)
        if self._wanting[needs]:
            self._release(self._wanting[needs].popleft())

    def _release(self, stream: Stream) -> None:
        stream.held = False
        self._go_on(stream)

    def _go_on(self, stream: Stream) -> None:
        """Begins what is at the head of a stream, if it can begin now."""
        while stream.queue and stream.running is None and not stream.held:
            item, ready_ns = stream.queue[0]
            if isinstance(item, Activity):
                gap = item.work.gap_ns if stream.free_ns >= 0 else 0
                ready_ns = max(ready_ns, stream.free_ns + gap, stream.barrier_ns)
            elif isinstance(item, Mark):
                ready_ns = max(ready_ns, stream.free_ns, stream.barrier_ns)
            if ready_ns > self.now:
                return self._at(ready_ns, stream)
            if isinstance(item, Activity):
                self._begin(stream, item)
            elif isinstance(item, Mark):
                stream.queue.popleft()
                item.done_ns = self.now
                for other in item.waiting:
                    self._release(other)
            elif item.mark.done_ns is None:
                item.mark.waiting.append(stream)
                stream.held = True
            else:
                stream.queue.popleft()
                stream.barrier_ns = max(stream.barrier_ns, item.mark.done_ns + item.delay_ns)
        return None

    def _begin(self, stream: Stream, activity: Activity) -> None:
        work = activity.work
        if work.needs is not None:
            if work.needs in self._taken:
                self._wanting[work.needs].append(stream)
                stream.held = True
                return
            self._taken.add(work.needs)
        stream.queue.popleft()
        stream.running = activity
        activity.start_ns = self.now
        self._at(self.now + work.dur_ns + work.late_ns, stream, activity)
