"""What takes most of the profiled steps, for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpudoctor.diagnosis import Location, Work
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

MOST = 25
"""Rows kept: the tail is below a per cent each."""


def work(profile: Profile) -> tuple[Work, ...]:
    """Kernels by name, longest first; on a CPU operators by name, by what they take themselves."""
    kernels, ops = profile.table("kernels"), profile.table("ops")
    if not kernels.empty:
        rows, time, kind = kernels, "dur_ns", "kernel_class"
    elif not ops.empty:
        rows, time, kind = ops[ops["name"].astype(str).str.contains("::", regex=False)], "self_ns", "op_class"
    else:
        return ()
    rows = _steady(rows)
    steps = max(1, rows["step"].nunique())
    total = float(rows[time].fillna(0).sum())
    if not total:
        return ()
    sums = rows.groupby("name", observed=True)[time].agg(["sum", "count"]).sort_values("sum", ascending=False)[:MOST]
    made = []
    for name, spent, count in zip(sums.index.tolist(), sums["sum"].tolist(), sums["count"].tolist(), strict=True):
        mine = rows[rows["name"].eq(name)]
        ns = round(spent / steps)
        made.append(Work(str(name), _first(mine[kind]), count / steps, ns, spent / total, _where(mine, time)))
    return tuple(made)


def _steady(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of steps; of a run that has both, those of the light profiler, which disturbs less."""
    inside = rows[rows["step"].notna()]
    if "observation" in inside and inside["observation"].eq("light").any():
        return inside[inside["observation"].eq("light").fillna(False).to_numpy(bool)]
    return inside


def _first(column: pd.Series[Any]) -> str | None:
    known = column.dropna()
    return str(known.iloc[0]) if len(known) else None


def _where(rows: pd.DataFrame, time: str) -> Location | None:
    known = rows[rows["file"].notna() & rows["line"].notna()]
    if known.empty:
        return None
    place: Any = known.groupby(["file", "line"], observed=True)[time].sum().idxmax()
    return Location(str(place[0]), int(place[1]))
