"""Adds the derived tables to a Profile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpudoctor import profile as schema
from gpudoctor.analysis import budget, device
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd


def derived(profile: Profile) -> Profile:
    """The Profile with the tables that follow from its others."""
    made = device.derive(profile.tables)
    if profile.measured("ops") and not profile.measured("kernels") and not profile.facts.get("launches_only"):
        made["step_budget"] = main_thread_budget(profile.table("steps"), profile.table("ops"))
    missing = {name: why for name, why in profile.why_missing.items() if name not in made}
    return replace(profile, tables={**profile.tables, **made}, why_missing=missing)


def main_thread_budget(steps: pd.DataFrame, ops: pd.DataFrame) -> pd.DataFrame:
    """`step_budget` of a run without a device."""
    rows: list[dict[str, Any]] = steps.to_dict("records")  # type: ignore[assignment]
    return schema.frame("step_budget", budget.rows(rows, ops))
