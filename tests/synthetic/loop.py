"""The training loop as those who watch it see it: where steps end, when a profiler is started and stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.synthetic.hardware import BARE, DETAIL, LIGHT, MS
from tests.synthetic.host import MAIN, PROCESS, Event
from tests.synthetic.machine import Machine
from tests.synthetic.training import DataLoader, DistributedDataParallel, Optimizer
from tests.synthetic.transfers import Transfers

COSTS = {"bare": BARE, "light": LIGHT, "detail": DETAIL}
"""What things cost the host under each kind of observation."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it was: number, begin, end, and how it was watched."""

    number: int
    start_ns: int
    end_ns: int
    label: str


@dataclass(slots=True)
class Burst:
    """A stretch of profiled steps."""

    label: str
    steps: list[int]
    events: list[Event]


class Torch(Transfers):
    """What a program gets: torch, as far as the machine has it.

    Attributes:
        steps: the steps so far.
        bursts: what profilers saw.
        watch_rows: what the recorder's watch would have written.
        settings: torch's settings by name, with the line that set them.
    """

    def __init__(
        self, machine: Machine, schedule: Sequence[str], marks: bool, stacks: bool, ends_with_batch: bool
    ) -> None:
        super().__init__(machine)
        self.steps: list[Step] = []
        self.bursts: list[Burst] = []
        self.watch_rows: list[list[Any]] = []
        self.settings: dict[str, tuple[str, str | None, int | None]] = {}
        self.loaders: list[DataLoader] = []
        self._schedule, self._marks, self._stacks, self._ends_with_batch = schedule, marks, stacks, ends_with_batch
        self._begun: int | None = None
        self._open: tuple[str, list[int]] | None = None
        self._marked_ns = 0
        self._asked = 0

    # -- what a program makes ------------------------------------------------------------------------------------

    def DataLoader(self, shapes: Any, **options: Any) -> DataLoader:  # noqa: N802
        """`torch.utils.data.DataLoader`."""
        loader = DataLoader(self, shapes, **options)
        loader.watch = self
        self.loaders.append(loader)
        return loader

    def AdamW(self, parameters: Any, **options: Any) -> Optimizer:  # noqa: N802
        """`torch.optim.AdamW`; `style` is loop, foreach or fused."""
        optimizer = Optimizer(self, parameters, "AdamW", **options)
        optimizer.watch = self
        return optimizer

    def SGD(self, parameters: Any, **options: Any) -> Optimizer:  # noqa: N802
        """`torch.optim.SGD` with momentum."""
        optimizer = Optimizer(self, parameters, "SGD", **options)
        optimizer.watch = self
        return optimizer

    def DistributedDataParallel(self, parameters: Any, **options: Any) -> DistributedDataParallel:  # noqa: N802
        """`torch.nn.parallel.DistributedDataParallel`."""
        return DistributedDataParallel(self, parameters, **options)

    def set_float32_matmul_precision(self, precision: str) -> None:
        """As torch's."""
        self.matmul_tf32 = precision != "highest"
        self.set("float32_matmul_precision", precision)

    def set(self, name: str, value: str) -> None:
        """Sets a setting of gpudoctor's table, on this line."""
        place = self.host.place()
        self.settings[name] = (value, place.file if place else None, place.line if place else None)

    # -- the loop, as those who watch it see it --------------------------------------------------------------------

    def goes_on(self) -> bool:
        """Whether there is another step."""
        return len(self.steps) < len(self._schedule)

    def asks_for_batch(self) -> None:
        """A loop that its own profiler watches ends a step where the next one begins."""
        if self._begun is None:
            self._begin()
        elif self._ends_with_batch:
            self._end()
        self._asked = self.host.now

    def batch(self, loader: DataLoader, begun_ns: int, position: int) -> None:
        """A batch was taken."""
        number, make = self.loaders.index(loader), round(loader.make_ns)
        parts = [None, None] if loader.workers else [round(0.8 * make), make - round(0.8 * make)]
        self.watch_rows.append(
            ["D", begun_ns, self.host.now, number, 0, position, loader._shapes[0][0][0], *parts, MAIN]
        )

    def backward(self, loss: Any) -> None:
        """As torch's."""
        begun = self.host.now
        super().backward(loss)
        self.watch_rows.append(["B", begun, self.host.now, MAIN, False, False])

    def optimizer_step(self, begun_ns: int) -> None:
        """The recorder ends a step behind the optimizer."""
        self.watch_rows.append(["O", begun_ns, self.host.now, 77, 0, MAIN])
        if not self._ends_with_batch:
            self._end()

    def _label(self) -> str:
        return self._schedule[len(self.steps)] if self.goes_on() else "bare"

    def _begin(self) -> None:
        label = self._label()
        if label != "bare" and self._open is None:
            begun = self.host.now
            self.host.now += 2 * MS
            self.watch_rows.append(["P", begun, self.host.now, len(self.bursts), "start"])
            self.host.start(COSTS[label], self._stacks and label == "detail", self._marks and label == "detail")
            self.machine.write_backlog()
            self._open = (label, [])
        self._begun = self.host.now
        if self._open is not None:
            self._open[1].append(len(self.steps))
            self.watch_rows.append(["M", self._begun, self._begun, len(self.steps), len(self.bursts)])
        self.machine.step = len(self.steps)
        self.host._external += 1
        self._marked_ns = self.host._external

    def _end(self) -> None:
        host, number = self.host, len(self.steps)
        assert self._begun is not None
        if self._open is not None:
            name = f"ProfilerStep#{number}"
            args = {"External id": self._marked_ns, "Record function id": 0}
            host._write(Event("user_annotation", name, PROCESS, MAIN, self._begun, host.now - self._begun, args))
        self.steps.append(Step(number, self._begun, host.now, self._label()))
        following = self._schedule[number + 1] if number + 1 < len(self._schedule) else "bare"
        if self._open is not None and following != self._open[0]:
            self.stop()
        self._begin()

    def stop(self) -> None:
        """The profiler is stopped."""
        if self._open is None:
            return
        label, numbers = self._open
        begun = self.host.now
        self.machine.synchronize()
        events = self.host.stop()
        self.host.now += 20 * MS
        self.bursts.append(Burst(label, numbers, events))
        self.watch_rows.append(["P", begun, self.host.now, len(self.bursts) - 1, "stop"])
        self._open = None
