"""Adds the derived tables to a Profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis import budget
from gpudoctor.profile import Profile


def derived(profile: Profile) -> Profile:
    """The Profile with the tables that follow from its others."""
    if profile.measured("kernels") or not profile.measured("ops"):
        return profile
    steps: list[dict[str, Any]] = profile.table("steps").to_dict("records")  # type: ignore[assignment]
    made = schema.frame("step_budget", budget.rows(steps, profile.table("ops")))
    missing = {name: why for name, why in profile.why_missing.items() if name != "step_budget"}
    return replace(profile, tables={**profile.tables, "step_budget": made}, why_missing=missing)
