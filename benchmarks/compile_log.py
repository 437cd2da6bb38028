"""What recording the compile log costs: as a share of compile time, and in steps in which nothing compiles.

    python benchmarks/compile_log.py [--repeats 9]

The same training step is compiled anew again and again in one process, with and without the log in turn; a figure is
the median over the pairs of the ratio of the two, in the process's CPU time: other work on the machine does not count,
nor do the seconds of the C++ compiler, which would hide something. Graphs are not cached. Compiling must get less than
5 % longer, other steps not measurably so.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

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

STEPS = 200


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """The compile log is written meanwhile."""
    place, patches = Place(folder), Patches()
    log = CompileLog(place, Watch(place), UserFiles(str(folder)), patches)
    assert log.attach()
    try:
        yield
    finally:
        log.detach()
        patches.undo()
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


def compile_seconds(backend: str, step: Callable[[], torch.Tensor]) -> float:
    """CPU seconds of a first call and its backward."""
    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend)
    begun = time.process_time()
    compiled().backward()
    return time.process_time() - begun


def step_seconds(compiled: Callable[[], torch.Tensor]) -> float:
    """CPU seconds of a steady step."""
    begun = time.process_time()
    for _ in range(STEPS):
        compiled()
    return (time.process_time() - begun) / STEPS


def compare(title: str, repeats: int, measure: Callable[[], float]) -> None:
    """Prints both medians and the median ratio over pairs, which of two comes first alternating."""
    bare, logged = [], []
    for number in range(repeats):
        for with_log in (number % 2 == 0, number % 2 != 0):
            if with_log:
                with tempfile.TemporaryDirectory() as name, recorded(Path(name)):
                    logged.append(measure())
            else:
                bare.append(measure())
    ratios = [b / a for a, b in zip(bare, logged, strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    times = f"{median(bare) * 1e3:9.3f} ms bare, {median(logged) * 1e3:9.3f} ms logged"
    print(f"{title:28} {times}, ratio {middle:.3f} (interquartile {low:.3f} to {high:.3f})", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    step = step_of(64)
    for backend in ("aot_eager", "inductor"):
        for _ in range(3):
            compile_seconds(backend, step)  # imports, and the objects of the C++ compiler
        compare(f"compiling, {backend}", repeats, lambda backend=backend: compile_seconds(backend, step))
    compiled = torch.compile(step, backend="aot_eager")
    compiled()
    compare("compiled steps", repeats * 3, lambda: step_seconds(compiled))
    compare("eager steps", repeats * 3, lambda: step_seconds(step))


if __name__ == "__main__":
    main()
