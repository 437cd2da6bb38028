"""Hand-made timelines in microseconds, as the tables that a loader gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from gpudoctor.analysis.device import derive
from gpudoctor.profile import frame

US = 1000
MAIN, ENGINE = 1, 2

_CALL_KINDS = {
    "cudaLaunchKernel": "launch",
    "cudaGraphLaunch": "graph_launch",
    "cudaMemcpyAsync": "memcpy",
    "cudaMalloc": "allocate",
    "cudaStreamSynchronize": "sync",
}


class Timeline:
    """Collects rows; `derive` gives the tables, all times in microseconds from 0."""

    def __init__(self, step_us: int, steps: int = 1) -> None:
        self.steps = [
            {"step": n, "start_ns": n * step_us * US, "dur_ns": step_us * US, "observation": "light"}
            for n in range(steps)
        ]
        self.ops: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []

    def op(self, name: str, start: int, end: int, thread: int = MAIN, parent: int | None = None, **more: Any) -> int:
        row = {"op": len(self.ops), "name": name, "start_ns": start * US, "dur_ns": (end - start) * US}
        self.ops.append(row | {"self_ns": 0, "thread": thread, "parent": parent} | more)
        return len(self.ops) - 1

    def call(self, name: str, start: int, end: int, thread: int = MAIN, op: int | None = None) -> int:
        row = {"call": len(self.calls), "name": name, "kind": _CALL_KINDS[name], "start_ns": start * US}
        row |= {"dur_ns": (end - start) * US, "thread": thread, "op": op, "blocks": "Synchronize" in name}
        self.calls.append(row)
        return len(self.calls) - 1

    def kernel(self, start: int, end: int, call: int | None = None, stream: int = 7, **more: Any) -> None:
        row = {"kernel": len(self.kernels), "kind": "kernel", "kernel_class": "other", "device": 0, "stream": stream}
        row |= {"start_ns": start * US, "dur_ns": (end - start) * US, "call": call, "graph": False}
        row |= {"step": next((s["step"] for s in self.steps if s["start_ns"] <= start * US), None)}
        self.kernels.append(row | more)

    def launch(self, at: int, start: int, end: int, thread: int = MAIN, op: int | None = None) -> None:
        """A launch call of 4 µs and its kernel."""
        self.kernel(start, end, self.call("cudaLaunchKernel", at, at + 4, thread, op))

    def derive(self) -> dict[str, pd.DataFrame]:
        tables = {"steps": self.steps, "ops": self.ops, "runtime_calls": self.calls, "kernels": self.kernels}
        return derive({name: frame(name, rows) for name, rows in tables.items()})

    def budget(self, step: int = 0) -> dict[str, int]:
        """Owners of a step with a share, in microseconds."""
        rows = self.derive()["step_budget"]
        rows = rows[(rows["step"] == step) & (rows["dur_ns"] > 0)]
        return dict(zip(rows["owner"].astype(str), (rows["dur_ns"] / US).astype(int), strict=True))

    def gaps(self) -> Sequence[tuple[int, int, str, str | None]]:
        """(begin, end, owner, evidence) in microseconds."""
        rows = self.derive()["gaps"]
        begin, end = rows["start_ns"] / US, (rows["start_ns"] + rows["dur_ns"]) / US
        evidence = [None if pd.isna(text) else str(text) for text in rows["evidence"]]
        return list(zip(begin.astype(int), end.astype(int), rows["owner"].astype(str), evidence, strict=True))
