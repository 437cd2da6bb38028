"""What recording one operator costs, measured in this process after the run, to take it off profiled times."""

from __future__ import annotations

import time
import warnings
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

OPERATORS = 400  # a few hundred microseconds without a profiler: long against the timer, short against any run
REPEATS = 5


def event_cost_ns() -> int:
    """Nanoseconds that a light profiler adds to one operator call on this machine (median of `REPEATS` runs).

    Operators on a tiny CPU tensor, no random numbers, nothing of the script's touched.
    """
    tensor, other = torch.zeros(1), torch.zeros(1)

    def run() -> int:
        begun = time.perf_counter_ns()
        for _ in range(OPERATORS):
            tensor.add_(other)
        return time.perf_counter_ns() - begun

    with torch.no_grad():
        run()
        bare = median(run() for _ in range(REPEATS))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = profile(activities=[ProfilerActivity.CPU])
            session.start()
            run()
            light = median(run() for _ in range(REPEATS))
            session.stop()
    return max(0, int((light - bare) / OPERATORS))
