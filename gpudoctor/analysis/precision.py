"""The derived tables about precision, loss scaling and layouts."""

from __future__ import annotations

import pandas as pd

from gpudoctor.analysis import casts, clips, conv_norms, gemm_shapes, layouts


def derive(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """The tables that these operators and kernels allow.

    Args:
        ops: the table `ops`.
        kernels: the table `kernels`; None when no device was watched.

    Returns:
        `casts` where operators have dtypes, `conv_norms` and `layout_conversions` where they have shapes (with a
        device also `gemm_shapes`), `clips` where they have Python callers.
    """
    made: dict[str, pd.DataFrame] = {}
    if ops["dtypes"].notna().any():
        made["casts"] = casts.rows(ops, kernels)
    if ops["shapes"].notna().any():
        made["conv_norms"] = conv_norms.rows(ops, kernels)
        made["layout_conversions"] = layouts.rows(ops, kernels)
        if kernels is not None:
            made["gemm_shapes"] = gemm_shapes.rows(ops, kernels)
    if ops["caller_function"].notna().any():
        made["clips"] = clips.rows(ops)
    return made
