"""Tables of patterns: operators that are one operator elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudoctor import profile as schema
from gpudoctor.analysis import attention, frames, loop_lines, op_storms, update_loops
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import pandas as pd


def derive(profile: Profile, gaps: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """`loop_lines`, `op_storms`, `attention_patterns` and `update_loops`, those that can be told.

    Args:
        profile: the Profile with its recorded tables.
        gaps: the derived table `gaps`; None without a device.
    """
    made: dict[str, pd.DataFrame] = {}
    ops = profile.table("ops")
    kernels = frames.launched_in_steps(profile.table("kernels")) if profile.measured("kernels") else None
    device = profile.measured("kernels") or profile.measured("runtime_calls")
    if device:  # what is small and slow there, kernels and their gaps say
        made |= {name: schema.empty(name) for name in ("op_storms", "update_loops")}
    if not profile.measured("ops"):
        return made
    if loop_lines.measured(ops):
        lines = loop_lines.rows(ops, kernels, gaps, profile.sources)
        made["loop_lines"] = schema.frame("loop_lines", lines)
        if not device:
            made["op_storms"] = schema.frame("op_storms", op_storms.rows(lines))
    if attention.measured(ops):
        made["attention_patterns"] = schema.frame("attention_patterns", attention.rows(ops, kernels))
    if not device and profile.measured("optimizers"):
        known = profile.rows("optimizers")
        found = update_loops.rows(ops, profile.rows("steps"), known, profile.sources)
        made["update_loops"] = schema.frame("update_loops", found)
    return made
