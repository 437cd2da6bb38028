"""Step times of two revisions: an exact permutation test over process runs, and when not to compare at all.

Steps of one process are no independent measurements (they share its memory layout, its core, its neighbours), so a run
of the script is the unit: one number each, its median unprofiled step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, log
from statistics import median

import numpy as np

from gpudoctor.compare.model import TimeChange
from gpudoctor.diagnosis import Run

SIGNIFICANCE = 0.05
"""Highest p-value of a verdict on time: one wrong verdict in twenty comparisons of equal revisions."""
LEAST_EFFECT = 0.03
"""Least change that is told from none: medians of equal runs on a shared machine differ by 1 to 2 %."""
MOST_ORDERS = 1 << 18
"""Orders that the exact test walks through; 18 pairs, or 10 runs against 10. Of more runs the first ones count."""
_MACHINE = ("cpu", "cores", "threads", "gpu", "gpus", "cpu limit")


def time_change(base_ns: Sequence[int], head_ns: Sequence[int], pairs: bool) -> TimeChange | None:
    """Compares step times; None when a side has none.

    Args:
        base_ns: median step of each run of the base, in nanoseconds.
        head_ns: of the head; with `pairs` each is the partner of the base's run at its place.
        pairs: the runs were made in turns.
    """
    if not base_ns or not head_ns:
        return None
    before, after = list(base_ns), list(head_ns)
    paired = pairs and len(before) == len(after)
    if paired:
        ratio = median(head / base for base, head in zip(before, after, strict=True))
        p_value = sign_flips([log(head / base) for base, head in zip(before, after, strict=True)])
    else:
        ratio = median(after) / median(before)
        p_value = relabellings(before, after)
    runs = min(len(before), len(after))
    if p_value is None:
        verdict = "too few runs"
    elif p_value <= SIGNIFICANCE and abs(ratio - 1) >= LEAST_EFFECT:
        verdict = "slower" if ratio > 1 else "faster"
    else:
        verdict = "no difference shown"
    return TimeChange(round(median(before)), round(median(after)), ratio, paired, runs, p_value, verdict)  # type: ignore[arg-type]


def sign_flips(differences: Sequence[float]) -> float | None:
    """Exact two-sided p-value that the mean difference of pairs is 0; None when no result could be significant.

    Under the null hypothesis each pair's difference is as likely with the other sign (Fisher's randomisation test for
    matched pairs), so the p-value is the share of the 2^n sign patterns whose mean is as far from 0.
    """
    used = np.array(differences[: MOST_ORDERS.bit_length() - 1])
    if 2 / 2 ** len(used) > SIGNIFICANCE:
        return None
    sums = np.zeros(1)
    for one in used:
        sums = np.concatenate([sums - one, sums + one])
    observed = abs(used.sum())
    return float(np.mean(np.abs(sums) >= observed * (1 - 1e-12)))


def relabellings(base: Sequence[float], head: Sequence[float]) -> float | None:
    """Exact two-sided p-value that runs of both sides have one mean of logarithms; None as above.

    Under the null hypothesis every choice of runs as the base is as likely (the two-sample permutation test).
    """
    first, second = list(base), list(head)
    while comb(len(first) + len(second), len(first)) > MOST_ORDERS:
        first, second = first[:-1], second[:-1]
    count = comb(len(first) + len(second), len(first))
    if 2 / count > SIGNIFICANCE:
        return None
    values = np.log(np.array([*first, *second], float))
    total, n, m = values.sum(), len(first), len(second)
    chosen = np.fromiter((values[list(one)].sum() for one in combinations(range(n + m), n)), float, count)
    gaps = np.abs((total - chosen) / m - chosen / n)
    observed = abs(values[n:].mean() - values[:n].mean())
    return float(np.mean(gaps >= observed * (1 - 1e-12)))


def why_refused(base: Run, head: Run) -> str | None:
    """Why step times of two runs are not compared; None when they can be."""
    if base.device != head.device:
        return f"other hardware: {base.device or 'unknown'} and {head.device or 'unknown'}"
    for name in _MACHINE:
        before, after = base.environment.get(name), head.environment.get(name)
        if before != after:
            return f"other hardware: {name} is {before or 'unknown'} and {after or 'unknown'}"
    if base.torch != head.torch:
        return f"another torch: {base.torch or 'unknown'} and {head.torch or 'unknown'}"
    if base.batch != head.batch:
        return f"another batch shape: {base.batch or 'unknown'} and {head.batch or 'unknown'}"
    return None
