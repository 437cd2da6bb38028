"""Times all rules, previews included, and the pricing of what they find, over a profile of 100,000 events and more.

    python benchmarks/rules.py TRACE [--events 100000] [--repeats 5]

The profile is a real one: the trace's steps, repeated until operators, kernels and runtime calls make as many events.
Prints the medians and the dearest rules. The aims are less than 1.5 s for all rules and 2 s for pricing their findings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from gpudoctor.api import load
from gpudoctor.config import Config
from gpudoctor.engine import run as engine
from gpudoctor.engine.pricing import Pricing, Ranking
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.engine.sandbox import Sandbox
from gpudoctor.profile import Profile

EVENTS = ("ops", "kernels", "runtime_calls")
IDS = {"op": "ops", "parent": "ops", "forward_op": "ops", "kernel": "kernels", "call": "runtime_calls"}
"""Columns that hold the id of a row, and in which table that row is."""


def repeated(profile: Profile, times: int) -> Profile:
    """The profile with its steps `times` over: ids, steps and times go on where the copy before ended."""
    sizes = {name: len(profile.table(name)) for name in EVENTS}
    steps = profile.table("steps")
    span = int(steps["start_ns"].max() + steps["dur_ns"].max()) if len(steps) else 10**9
    number = int(steps["step"].max()) + 1 if len(steps) else 1
    tables = {
        name: pd.concat([moved(table, k, sizes, span, number) for k in range(times)], ignore_index=True)
        if "step" in table
        else table
        for name, table in profile.tables.items()
    }
    return replace(profile, tables=tables)


def moved(table: pd.DataFrame, k: int, sizes: Mapping[str, int], span: int, number: int) -> pd.DataFrame:
    """Copy number k of a table."""
    changes: dict[str, Any] = {name: table[name] + k * number for name in ("step", "launch_step") if name in table}
    if "start_ns" in table:
        changes["start_ns"] = table["start_ns"] + k * span
    for column, owner in IDS.items():
        if column in table:
            changes[column] = table[column] + k * sizes[owner]
    return table.assign(**changes)


def main() -> None:
    """Times them and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    profile = load(arguments.trace)
    seen = sum(len(profile.table(name)) for name in EVENTS)
    profile = repeated(profile, -(-arguments.events // seen))
    rules = load_rules(())
    spent: dict[str, list[float]] = {}
    query = Sandbox.query

    def timed(self: Sandbox, sql: str, tables: tuple[str, ...], parameters: Mapping[str, Any], where: str) -> Any:
        began = time.perf_counter()
        try:
            return query(self, sql, tables, parameters, where)
        finally:
            spent.setdefault(where, []).append(time.perf_counter() - began)

    Sandbox.query = timed  # type: ignore[method-assign]
    prices: list[float] = []

    class Timed(Pricing):
        def __init__(self, *arguments: Any) -> None:
            began = time.perf_counter()
            super().__init__(*arguments)
            prices.append(time.perf_counter() - began)

        def rank(self, *arguments: Any) -> Ranking:
            began = time.perf_counter()
            made = super().rank(*arguments)
            prices[-1] += time.perf_counter() - began
            return made

    engine.Pricing = Timed  # type: ignore[misc]
    totals = []
    for _ in range(arguments.repeats):
        began = time.perf_counter()
        outcome = engine.diagnose(profile, rules, config=Config(preview=True))
        totals.append(time.perf_counter() - began)
    events = {name: len(profile.table(name)) for name in EVENTS}
    print(f"{events}: {len(rules)} rules, {len(spent)} of them judged, {len(outcome.findings)} findings")
    print(f"all rules: median {median(totals):.2f} s of {arguments.repeats} ({min(totals):.2f} to {max(totals):.2f})")
    priced = sum(finding.saving is not None and finding.saving.grade == "simulated" for finding in outcome.findings)
    print(f"pricing {priced} of them by replay: median {median(prices):.2f} s ({min(prices):.2f} to {max(prices):.2f})")
    for where, times in sorted(spent.items(), key=lambda item: -median(item[1]))[:10]:
        print(f"  {median(times) * 1e3:6.1f} ms  {where}")


if __name__ == "__main__":
    main()
