"""What recording the compile log costs: as a share of compile time, and in steps in which nothing compiles.

    python benchmarks/compile_log.py [--repeats 7]

Compiling: torch counts the time that it spends on log records while it compiles, ours included, in each compilation's
metrics; what it leaves out (records of its timers) is timed here. The sum is a share of the compile time of the same
compilation, so other work on the machine cancels out. It must stay below 5 %. Graphs are not cached, but the C++
compiler's objects are after the first rounds, so that its seconds hide nothing.

Steps: blocks of steps with and without the log in turn; the median over the pairs of the ratio of the two.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch import nn

from gpudoctor.recorder.compile_log import CompileLog
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.place import Place
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles

STEPS = 100
COUNTED: dict[str, float] = {}
"""torch's own count so far by compile id: it is never set back, not even by a reset."""


@dataclass
class Cost:
    """Seconds that log records took, and of the compilations around them."""

    log_s: float = 0.0
    compile_s: float = 0.0


@contextmanager
def recorded() -> Iterator[Cost]:
    """The compile log is written meanwhile, and what it costs is added up."""
    cost = Cost()
    with tempfile.TemporaryDirectory() as name:
        place, patches = Place(Path(name)), Patches()
        log = CompileLog(place, Watch(place), UserFiles(name), patches)
        assert log.attach()
        logger = logging.getLogger("torch.__trace")
        debug = logger.debug

        def timed(*args: Any, **kwargs: Any) -> None:
            begun = time.perf_counter()
            debug(*args, **kwargs)
            metadata = kwargs["extra"]["metadata"]
            if "chromium_event" in metadata:
                cost.log_s += time.perf_counter() - begun
            for key in ("compilation_metrics", "bwd_compilation_metrics"):
                if metrics := metadata.get(key):
                    now = (metrics["structured_logging_overhead_us"] or 0) / 1e6
                    cost.log_s += now - COUNTED.get(metrics["compile_id"], 0.0)
                    COUNTED[metrics["compile_id"]] = now
                    cost.compile_s += metrics["duration_us"] / 1e6

        patches.set(logger, "debug", timed)
        try:
            yield cost
        finally:
            patches.undo()
            log.detach()
            assert log.failed is None


def step_of(width: int) -> Callable[[], torch.Tensor]:
    """A forward pass of two transformer layers with a graph break between them."""
    first, second = (nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(2))
    batch = torch.randn(4, 16, width)

    def step() -> torch.Tensor:
        hidden = first(batch)
        torch._dynamo.graph_break()
        return second(hidden).square().mean()

    return step


def compiling(backend: str, step: Callable[[], torch.Tensor], repeats: int) -> None:
    """Prints the log's share of the compile time."""
    shares, times = [], []
    for number in range(repeats + 2):
        torch._dynamo.reset()
        with recorded() as cost:
            torch.compile(step, backend=backend)().backward()
        if number >= 2:  # imports, and the objects of the C++ compiler
            shares.append(cost.log_s / cost.compile_s)
            times.append(cost.compile_s)
    low, middle, high = quantiles(shares, n=4)
    shown = f"{middle:.2%} of compile time (interquartile {low:.2%} to {high:.2%})"
    print(f"compiling, {backend:10} {median(times) * 1e3:8.0f} ms, log {shown}", flush=True)


def block(step: Callable[[], torch.Tensor]) -> float:
    """Seconds of a step."""
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begun) / STEPS


def steady(title: str, step: Callable[[], torch.Tensor], repeats: int) -> None:
    """Prints both medians and the median ratio over pairs; which of the two comes first alternates."""
    bare, logged = [], []
    block(step)
    for number in range(repeats):
        for with_log in (number % 2 == 0, number % 2 != 0):
            if with_log:
                with recorded():
                    logged.append(block(step))
            else:
                bare.append(block(step))
    low, middle, high = quantiles([b / a for a, b in zip(bare, logged, strict=True)], n=4)
    times = f"{median(bare) * 1e3:.3f} ms bare, {median(logged) * 1e3:.3f} ms with the log"
    print(f"{title:21} {times}, ratio {middle:.3f} (interquartile {low:.3f} to {high:.3f})", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    step = step_of(64)
    for backend in ("aot_eager", "inductor"):
        compiling(backend, step, repeats)
    compiled = torch.compile(step, backend="aot_eager")
    steady("compiled steps", compiled, repeats * 4)
    steady("eager steps", step, repeats * 4)


if __name__ == "__main__":
    main()
