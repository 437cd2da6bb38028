"""The derived tables about precision, loss scaling and layouts."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gpudoctor.analysis import casts, clips
from gpudoctor.profile import empty


def derive(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables that these operators and kernels allow.

    Args:
        tables: `ops` and `kernels`, those that were measured.

    Returns:
        `casts` where operators have dtypes, `clips` where they have Python callers.
    """
    ops, kernels = tables.get("ops", empty("ops")), tables.get("kernels")
    made: dict[str, pd.DataFrame] = {}
    if ops["dtypes"].notna().any():
        made["casts"] = casts.rows(ops, kernels)
    if ops["caller_function"].notna().any():
        made["clips"] = clips.rows(ops)
    return made
