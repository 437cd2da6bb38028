"""Counts of torch.compile over the whole run."""

from __future__ import annotations

import pandas as pd

from gpudoctor.counting.places import Places
from gpudoctor.diagnosis import CountAt, Counter
from gpudoctor.profile import Profile

_LOGGED = {"graph_breaks": "graph_breaks", "recompiles": "recompiles", "generated_kernels": "generated_kernels"}
_COMPILED = ("recompile_limits", "compile_failures", "graphs", "graph_operators")


def counts(profile: Profile, places: Places) -> dict[str, Counter]:
    """The counters of the whole run by name."""
    made: dict[str, Counter] = {}
    for name, table in _LOGGED.items():
        made[name] = _count(profile.table(name), places) if profile.measured(table) else _unknown(profile, table)
    if profile.measured("recompiles"):
        again = profile.table("recompiles")
        made["recompiles"] = _recompiles(profile, again[~again["refused"].fillna(False).astype(bool)], places)
    if not profile.measured("compilations"):
        return made | {name: _unknown(profile, "compilations") for name in _COMPILED}
    tried = profile.table("compilations")
    limit = tried["limit_hit"].fillna(False).astype(bool)
    graphs = tried[tried["graph_ops"].fillna(0).gt(0).to_numpy(bool)]
    failed = tried[tried["fail_type"].notna() & ~limit]
    return made | {
        "recompile_limits": _count(tried[limit], places),
        "compile_failures": _count(failed.assign(file=failed["fail_file"].fillna(failed["file"])), places),
        "graphs": _count(graphs, places),
        "graph_operators": _count(graphs, places, "graph_ops"),
    }


def _count(rows: pd.DataFrame, places: Places, weight: str | None = None) -> Counter:
    total = len(rows) if weight is None else int(rows[weight].sum())
    return Counter(total, scope="run", lines=places.lines(rows, weight))


def _recompiles(profile: Profile, rows: pd.DataFrame, places: Places) -> Counter:
    """Recompilations at the lines that have to change, as far as these are known; else at the calling lines."""
    causes = profile.table("recompile_causes")
    known = causes[causes["line"].notna().to_numpy(bool)]
    if int(known["recompiles"].fillna(0).sum()) == len(rows):
        return Counter(len(rows), scope="run", lines=places.lines(known, "recompiles"))
    lines: tuple[CountAt, ...] = places.lines(rows, columns=("caller_file", "caller_line"))
    return Counter(len(rows), scope="run", lines=lines or places.lines(rows))


def _unknown(profile: Profile, table: str) -> Counter:
    return Counter(None, scope="run", unknown=profile.why_not(table)[0])
