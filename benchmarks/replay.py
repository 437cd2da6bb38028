"""How far the replay's savings are from the truth: random programs, run with and without each remedy.

    python -m benchmarks.replay [--seeds 500] [--from 10000] [--whole-us]

The truth is a synthetic machine (`tests/synthetic/random_programs.py`) that shares no code with the replay. An error is
the predicted saving minus the true one, in points of the run: savings of 30 % and 32 % are 2 points apart.
Aim: median at most 0.1 points, 95th percentile at most 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from tests.synthetic.random_programs import REMEDIES
from tests.synthetic.random_savings import Prediction, predictions


def report(made: list[Prediction]) -> Iterator[str]:
    """Lines: errors by remedy, the worst seeds of each, and all together."""
    yield f"{'remedy':20}{'n':>6}{'median':>8}{'p90':>8}{'p95':>8}{'max':>8}  worst: seed (bottleneck) predicted/true"
    for name in REMEDIES:
        some = sorted((p for p in made if p.remedy == name), key=lambda p: -abs(p.points))
        if not some:
            continue
        worst = ", ".join(f"{p.seed} ({p.bottleneck}) {100 * p.predicted:.1f}/{100 * p.true:.1f}" for p in some[:4])
        yield f"{_figures(name, some)}  {worst}"
    yield _figures("all", made)


def _figures(name: str, made: list[Prediction]) -> str:
    errors = np.abs([p.points for p in made])
    quantiles = (*np.quantile(errors, (0.5, 0.9, 0.95)), errors.max())
    return f"{name:20}{len(made):6}" + "".join(f"{value:8.3f}" for value in quantiles)


def main() -> None:
    """Predicts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=500, help="programs")
    parser.add_argument("--from", type=int, default=10_000, dest="first", help="first seed")
    parser.add_argument("--whole-us", action="store_true", help="times in whole microseconds, as old torch wrote them")
    args = parser.parse_args()
    made = [p for seed in range(args.first, args.first + args.seeds) for p in predictions(seed, args.whole_us)]
    print("\n".join(report(made)))


if __name__ == "__main__":
    main()
