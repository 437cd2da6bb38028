"""Small recordings written by hand, in microseconds, for tests of the replay."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpudoctor.analysis.simulate import graph as dependency
from gpudoctor.analysis.simulate import replay
from gpudoctor.analysis.simulate.edits import Edit, weights
from gpudoctor.analysis.simulate.events import read
from gpudoctor.profile import Profile, frame

MAIN, ENGINE, OTHER = 1, 2, 3


class Tiny:
    """Collects events; times in microseconds, ids in the order of the calls."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("steps", "ops", "runtime_calls", "kernels", "stream_waits")
        }

    def _add(self, table: str, key: str | None, start: float, end: float, **more: Any) -> int:
        number = len(self.rows[table])
        row = {"start_ns": round(start * 1000), "dur_ns": round(end * 1000) - round(start * 1000)} | more
        self.rows[table].append(row if key is None else {key: number} | row)
        return number

    def step(self, start: float, end: float, observation: str = "detail") -> int:
        number = len(self.rows["steps"])
        return self._add("steps", "step", start, end, observation=observation, warmup=number < 0)

    def op(self, start: float, end: float, name: str = "aten::add", thread: int = MAIN) -> int:
        known = {"name": name, "thread": thread, "step": self._step, "observation": "detail"}
        return self._add("ops", "op", start, end, **known)

    @property
    def _step(self) -> int:
        """The step that was added last: what is added now is part of it."""
        return max(0, len(self.rows["steps"]) - 1)

    def call(self, start: float, end: float, name: str = "cudaLaunchKernel", thread: int = MAIN, **more: Any) -> int:
        number = len(self.rows["runtime_calls"])
        known = {"thread": thread, "correlation": number, "kind": "launch", "step": self._step} | more
        return self._add("runtime_calls", "call", start, end, name=name, **known)

    def kernel(self, start: float, end: float, call: int | None, stream: int = 7, **more: Any) -> int:
        known = {"name": "kernel", "kind": "kernel", "kernel_class": "other", "device": 0, "stream": stream}
        known |= {"call": call, "step": self._step, "launch_step": self._step}
        return self._add("kernels", "kernel", start, end, **(known | more))

    def launch(self, at: float, start: float, end: float, thread: int = MAIN, **more: Any) -> int:
        """A launch call of 5 µs inside an operator, and its kernel."""
        self.op(at - 1, at + 6, thread=thread)
        return self.kernel(start, end, self.call(at, at + 5, thread=thread), **more)

    def profile(self, **facts: Any) -> Profile:
        return Profile({name: frame(name, rows) for name, rows in self.rows.items() if rows}, facts)

    def graph(self) -> dependency.Graph:
        events = read(self.profile())
        assert events is not None
        return dependency.build(events)


def end_us(graph: dependency.Graph, edit: Edit | None = None) -> float:
    """When all work is done, in microseconds."""
    player = replay.Player(graph)
    times = player.anchored() if edit is None else player.times(*weights(graph, edit))
    return float(replay.ends(graph, times).max()) / 1000


def step_us(graph: dependency.Graph, edit: Edit | None = None) -> list[float]:
    """How long each step takes, in microseconds."""
    player = replay.Player(graph)
    times = player.anchored() if edit is None else player.times(*weights(graph, edit))
    return [float(each) for each in np.round(replay.step_times(graph, times) / 1000, 3)]
