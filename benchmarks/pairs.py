"""How predicted savings compare with measured ones: the samples on this machine, each beside its healthy twin.

    python -m benchmarks.pairs [--pairs loader-stall,unused-compute] [--repeats 6] [--json FILE]

For each pair `gpudoctor check` prices the problem once; then problem and twin run by turns without, and a hook behind
the optimizer takes the times of their steps. A prediction holds when the median difference, give or take its quartiles,
lies in the predicted range. Where a rule gives a bound and no range, the range begins at zero; where it gives what a
model says, at half of that and it ends at one and a half. Several findings of the pair's rule (two tables that the twin
both mends) count together. Pairs priced in compile time or not at all are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from statistics import median, quantiles
from typing import Any

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
TIMER = """
import atexit, runpy, statistics, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
ends = []
register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter_ns()))
def said():
    steps = [b - a for a, b in zip(ends, ends[1:])]
    steps = steps[len(steps) // 10 :]
    print(f"\\nSTEPNS {statistics.fmean(steps) if steps else 0:.0f}", flush=True)
atexit.register(said)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def predicted(folder: Path, rule: str) -> dict[str, Any] | None:
    """The saving of the sample's findings, and how far it may lie; None where it has no price in step time."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "gpudoctor", "check", "--preview", "--output-format", "json", "--run-to-end"]
        done = subprocess.run(
            [*command, str(folder / "train.py")],
            cwd=place,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
    findings = json.loads(done.stdout)["findings"] if done.stdout else []
    found = [each["saving"] for each in findings if each["rule"] == rule and each["saving"]]
    found = [saving for saving in found if saving["ns_per_step"] and saving["compile_ns"] is None]
    if not found:
        return None
    ends = [_ends(saving) for saving in found]
    return {
        "grade": found[0]["grade"],
        "ns": sum(saving["ns_per_step"] for saving in found),
        "low": sum(low for low, _ in ends),
        "high": sum(high for _, high in ends),
        "ranged": all(saving["low_ns"] is not None for saving in found),
    }


def _ends(saving: dict[str, Any]) -> tuple[float, float]:
    if saving["low_ns"] is not None:
        return saving["low_ns"], saving["high_ns"]
    ns = saving["ns_per_step"]
    return (ns / 2, 1.5 * ns) if saving["basis"].startswith("model") else (0, ns)


def step_ns(script: Path) -> float:
    """Mean time of a step behind the first tenth."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-c", TIMER, str(script)]
        done = subprocess.run(command, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return float(done.stdout.rsplit("STEPNS ", 1)[1])


def measured(folder: Path, repeats: int) -> tuple[float, float, float]:
    """Median and quartiles of the differences between problem and twin, by turns."""
    pairs = [(step_ns(folder / "train.py"), step_ns(folder / "train_fixed.py")) for _ in range(repeats)]
    differences = [problem - twin for problem, twin in pairs]
    low, _, high = quantiles(differences, n=4) if repeats > 1 else (differences[0],) * 3
    return median(differences), low, high


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's: of the places, without ties."""
    places = [{value: at for at, value in enumerate(sorted(values))} for values in (a, b)]
    gaps = sum((places[0][x] - places[1][y]) ** 2 for x, y in zip(a, b, strict=True))
    return 1 - 6 * gaps / (len(a) * (len(a) ** 2 - 1)) if len(a) > 2 else float("nan")


def main() -> None:
    """Runs the pairs and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default="", help="names of samples, with commas; all by default")
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = [name for name in arguments.pairs.split(",") if name]
    rows: list[dict[str, Any]] = []
    for folder in sorted(path.parent for path in SAMPLES.glob("*/expected.toml")):
        if names and folder.name not in names:
            continue
        rule = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))["rule"]
        known = predicted(folder, rule)
        if known is None:
            print(f"{folder.name:28} {rule}  no price in step time", flush=True)
            continue
        middle, low, high = measured(folder, arguments.repeats)
        inside = low <= known["high"] and high >= known["low"]
        rows.append({"pair": folder.name, "rule": rule, **known, "measured": middle, "inside": inside})
        print(
            f"{folder.name:28} {rule} {known['grade']:9} {known['low'] / 1e6:7.3f} {known['ns'] / 1e6:7.3f} "
            f"{known['high'] / 1e6:7.3f} ms, measured {middle / 1e6:7.3f} ({low / 1e6:.3f} to {high / 1e6:.3f}) "
            f"{'inside' if inside else 'OUTSIDE'}{'' if known['ranged'] else ', no range of its own'}",
            flush=True,
        )
    if rows:
        share = sum(row["inside"] for row in rows) / len(rows)
        ranks = rank_correlation([row["ns"] for row in rows], [row["measured"] for row in rows])
        print(f"{len(rows)} pairs, {share:.0%} inside, rank correlation {ranks:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
