"""Adds the derived tables to a Profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpudoctor import hardware
from gpudoctor import profile as schema
from gpudoctor.analysis import (
    break_idle,
    budget,
    device_pace,
    embedding_gradients,
    late_compiles,
    padding,
    patterns,
    recompile_causes,
    repeated_calls,
    round_trips,
    unused_values,
)
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd


def derived(profile: Profile) -> Profile:
    """The Profile with the tables that follow from its others."""
    made = _made(profile)
    if not made:
        return profile
    missing = {name: why for name, why in profile.why_missing.items() if name not in made}
    whole = replace(profile, tables={**profile.tables, **made}, why_missing=missing)
    return replace(whole, facts=device_pace.corrected(whole.facts, whole.rows("steps"))) if "steps" in made else whole


def _gpu(profile: Profile) -> hardware.Gpu | None:
    name = profile.facts.get("gpu_specification")
    return next((gpu for gpu in hardware.known() if gpu.name == name), None)


def _made(profile: Profile) -> Mapping[str, pd.DataFrame]:
    from gpudoctor.analysis import device, precision

    made = device.derive(profile.tables, _gpu(profile))
    if profile.measured("steps") and profile.measured("kernels"):
        made["steps"] = device_pace.with_device_ns(profile.table("steps"), profile.table("kernels"))
    on_cpu = profile.measured("ops") and not profile.measured("kernels") and not profile.measured("runtime_calls")
    if on_cpu and not profile.measured("step_budget"):
        steps: list[dict[str, Any]] = profile.table("steps").to_dict("records")  # type: ignore[assignment]
        made["step_budget"] = schema.frame("step_budget", budget.rows(steps, profile.table("ops")))
    if profile.measured("ops"):
        made = {**made, **precision.derive(profile.table("ops"), _launched(made.get("kernels")))}
    made = {**made, **patterns.derive(profile, made.get("gaps"))}
    if "shapes" in profile.table("ops") and profile.table("ops")["shapes"].notna().any():
        kernels = _launched(profile.table("kernels")) if profile.measured("kernels") else None
        made = {**made, "embedding_gradients": embedding_gradients.rows(profile.table("ops"), kernels, profile.sources)}
    if profile.measured("ops") and profile.table("ops")["forward_op"].notna().any():
        made = {**made, "unused_values": unused_values.rows(profile.table("ops"), profile.sources)}
    if profile.measured("module_calls") and profile.measured("ops"):
        kernels = _launched(made.get("kernels", profile.table("kernels"))) if profile.measured("kernels") else None
        repeated = repeated_calls.rows(profile.rows("module_calls"), profile.table("ops"), kernels)
        made = {**made, "repeated_calls": repeated}
    if profile.measured("padded_inputs") and profile.measured("ops"):
        kernels = _launched(made.get("kernels", profile.table("kernels"))) if profile.measured("kernels") else None
        padded = padding.rows(profile.rows("padded_inputs"), profile.table("ops"), kernels)
        made = {**made, "padding": padded}
    if profile.measured("kernels") and profile.sources:
        made = {**made, "round_trips": round_trips.rows(profile.table("kernels"), profile.sources)}
    made = {**made, **_replayed(profile)}
    if profile.measured("recompiles") and profile.measured("compilations"):
        made = {**made, **_compiling(profile)}
    if profile.measured("graph_breaks") and len(profile.table("graph_breaks")) and "gaps" in made:
        idle = break_idle.per_step(
            profile.rows("compilations"), profile.rows("graph_breaks"), profile.table("ops"), made["gaps"]
        )
        made = {**made, "graph_breaks": break_idle.with_idle(profile.table("graph_breaks"), idle)}
    return made


def _launched(kernels: pd.DataFrame | None) -> pd.DataFrame | None:
    from gpudoctor.analysis import frames

    return None if kernels is None else frames.launched_in_steps(kernels)


def _replayed(profile: Profile) -> dict[str, pd.DataFrame]:
    """What the replay of the profiled steps gives: how well, and on a device what they hang on."""
    from gpudoctor.analysis.simulate import price, tables

    played = price.simulation(profile)
    if played is None:
        return {}
    made = {"replayed_steps": tables.replayed_steps(played)}
    if len(played.graph.events.activities):
        made["critical_path"] = tables.critical_path(profile, played)
    return made


def _compiling(profile: Profile) -> dict[str, pd.DataFrame]:
    """What follows from the compile log."""
    compilations, steps = profile.rows("compilations"), profile.rows("steps")
    causes = recompile_causes.rows(
        profile.rows("recompiles"), compilations, profile.rows("schedulers"), profile.sources, len(steps)
    )
    made = {"recompile_causes": schema.frame("recompile_causes", causes)}
    if steps:
        late = late_compiles.rows(compilations, profile.rows("compile_calls"), steps, causes)
        made["late_compiles"] = schema.frame("late_compiles", late)
    return made
