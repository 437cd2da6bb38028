"""What watching costs: hook time per event, times events per step, as a share of a small transformer's step.

    python benchmarks/hook_cost.py [--repeats 15]

Each figure is a difference of two loops in one process, armed and bare in turn; printed as median and interquartile
range over the repeats. The whole-run watch must stay below 1 % of the step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpudoctor.recorder.agent import Agent
from gpudoctor.recorder.options import Options
from gpudoctor.recorder.start import arm

CALLS = 2000
STEPS = 30


def timed(function: Callable[[], object], calls: int) -> float:
    """Microseconds a call."""
    begun = time.perf_counter_ns()
    for _ in range(calls):
        function()
    return (time.perf_counter_ns() - begun) / calls / 1000


def armed(folder: Path) -> Agent:
    """An agent that watches and never profiles, as in the long stretches of a run."""
    Options(str(folder), run_to_end=True, warmup=10**9).save(folder)
    return arm(folder)


def difference(function: Callable[[], object], calls: int, folder: Path) -> float:
    """Microseconds that an armed agent adds to a call."""
    bare = timed(function, calls)
    agent = armed(folder)
    with_hooks = timed(function, calls)
    agent.finish("benchmark")
    agent.uninstall()
    return with_hooks - bare


def transformer_step() -> Callable[[], None]:
    """A step of a four-layer transformer of width 128 on 8 sequences of 64."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    net = nn.Sequential(nn.Embedding(256, 128), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False))
    optimizer = torch.optim.AdamW(net.parameters())

    def step() -> None:
        optimizer.zero_grad()
        net(torch.randint(0, 256, (8, 64))).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    loss = weight.sum()
    loader = DataLoader(TensorDataset(torch.zeros(CALLS, 1)), batch_size=1)
    weight.grad = torch.zeros(1)

    def backward() -> None:
        loss.backward(retain_graph=True)

    def epoch() -> None:
        for _ in loader:
            pass

    step = transformer_step()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = {
            "optimizer step": lambda: difference(optimizer.step, CALLS, folder),
            "backward": lambda: difference(backward, CALLS, folder),
            "batch": lambda: difference(epoch, 1, folder) / CALLS,
        }
        total = 0.0
        for event, measure in events.items():
            values = [measure() for _ in range(repeats)]
            low, middle, high = quantiles(values, n=4)
            total += middle
            print(f"{event:15} {middle:7.2f} µs a call  (interquartile {low:.2f} to {high:.2f})")
        times = [timed(step, STEPS) for _ in range(repeats)]
    print(f"transformer     {median(times):7.0f} µs a step  ({min(times):.0f} to {max(times):.0f})")
    print(f"one of each     {total:7.2f} µs a step, {total / median(times):.3%} of it (must stay below 1 %)")


if __name__ == "__main__":
    main()
