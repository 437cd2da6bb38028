"""A host that works off a random program: operators and runtime calls on two threads, and what it waits for.

Autograd's thread works while the main thread waits for it, as in torch, so there is one clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.synthetic.random_device import Activity, Device, Mark, Work

SUBMITTED = 0.7
"""Part of a launch call after which the device is told: what follows is bookkeeping."""

EVENT_NS = 1_200
"""From an event's being done to what waited for it on another stream."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A runtime call as the program asks for it.

    Attributes:
        key: number in its program.
        api: name of the function.
        cost_ns: what it takes the host when it waits for nothing.
        between_ns: host time in the operator before it.
        works: what it launches.
        waits: what it returns behind: the `device`, a `stream`, its own `copy`, the event `mark`; empty for nothing.
        stream: which stream that is, or which stream records the event or waits for it.
        tail_ns: from the end of what it waits for to its return.
        after_ns: the driver's own work when the wait is over (to free memory, say).
        mark: name of the event that it records, waits for or has a stream wait for.
    """

    key: int
    api: str
    cost_ns: int
    between_ns: int = 0
    works: tuple[Work, ...] = ()
    waits: str = ""
    stream: int = 7
    tail_ns: int = 0
    after_ns: int = 0
    mark: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """Operators one inside another, and the calls of the innermost.

    Attributes:
        key: number in its program.
        names: outermost first; none where Python itself calls the runtime, or an operator was taken out.
        role: what remedies know it by.
        calls: what the innermost calls.
        gap_ns: host time before it: Python or autograd's engine. Stays when the operator is taken out.
        enter_ns: from its begin to its first call, without what that has before it.
        leave_ns: from its last call to its end.
        backward: it runs on autograd's thread.
        batch: number of the batch that a DataLoader's worker must have ready; -1 for none.
        inside: range of the profiler that it is in.
    """

    key: int
    names: tuple[str, ...]
    role: str
    calls: tuple[Call, ...] = ()
    gap_ns: int = 0
    enter_ns: int = 0
    leave_ns: int = 0
    backward: bool = False
    batch: int = -1
    inside: str = ""


class Loader(Protocol):
    """What makes batches beside the loop."""

    def ready_ns(self, batch: int, now_ns: int) -> int:
        """When the loop, which asks now, has the batch."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MadeCall:
    """A call as it happened; its correlation is its number in the run, from 1."""

    call: Call
    correlation: int
    start_ns: int
    end_ns: int
    operator: int


@dataclass(frozen=True, slots=True, eq=False)
class MadeOperator:
    """An operator as it happened."""

    operator: Operator
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Timeline:
    """What happened, in the host's order.

    Attributes:
        operators: those of the program, with what has no name.
        calls: all runtime calls.
        steps: begin and end of each step on the host.
        activities: what the device did, in the order of launches.
        end_ns: when host and device were done.
    """

    operators: list[MadeOperator] = field(default_factory=list)
    calls: list[MadeCall] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    end_ns: int = 0


class Host:
    """Runs steps.

    Attributes:
        now: its clock, in nanoseconds from the first step's begin.
    """

    def __init__(self, loader: Loader | None) -> None:
        self.now = 0
        self._loader = loader
        self._device = Device()
        self._marks: dict[str, Mark] = {}
        self._made = Timeline()

    def run(self, steps: Sequence[Sequence[Operator]]) -> Timeline:
        """All steps, and the device to its end."""
        made = self._made
        for operators in steps:
            begun = self.now
            for operator in operators:
                self._operator(operator)
            made.steps.append((begun, self.now))
        made.end_ns = max(self.now, self._device.drain())
        made.activities = self._device.activities
        return made

    def _operator(self, operator: Operator) -> None:
        self.now += operator.gap_ns
        start = self.now
        self.now += operator.enter_ns
        if operator.batch >= 0 and self._loader is not None:
            self.now = max(self.now, self._loader.ready_ns(operator.batch, self.now))
        for call in operator.calls:
            self._call(call)
        self.now += operator.leave_ns
        self._made.operators.append(MadeOperator(operator, start, self.now))

    def _call(self, call: Call) -> None:
        device, start = self._device, self.now + call.between_ns
        correlation = len(self._made.calls) + 1
        begun = start
        if call.works:
            begun = device.room(start)
            device.submit(call.works, correlation, begun + round(SUBMITTED * call.cost_ns))
        end = begun + call.cost_ns
        if call.api == "cudaEventRecord":
            self._marks[call.mark] = device.record(call.stream, end)
        elif call.api == "cudaStreamWaitEvent":
            if call.mark in self._marks:  # one that was never recorded is done
                device.wait(call.stream, self._marks[call.mark], EVENT_NS, end)
        elif call.waits:
            done = self._done(call)
            end = max(end, done + call.tail_ns if done > begun else 0) + call.after_ns
        self.now = end
        self._made.calls.append(MadeCall(call, correlation, start, end, len(self._made.operators)))

    def _done(self, call: Call) -> int:
        """When what a call waits for is done."""
        device = self._device
        if call.waits == "mark":
            return device.finish(self._marks[call.mark]) if call.mark in self._marks else 0
        streams = device.streams() if call.waits == "device" else [call.stream]
        marks = [device.record(stream, self.now) for stream in streams]
        return max((device.finish(mark) for mark in marks), default=0)
