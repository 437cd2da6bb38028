"""The batch that a step works on: times of two runs can be compared only where it is the same."""

from __future__ import annotations

import json

from gpudoctor.profile import Profile

_INPUT: dict[str, int] = {
    "aten::linear": 0, "aten::conv1d": 0, "aten::conv2d": 0, "aten::conv3d": 0, "aten::convolution": 0,
    "aten::embedding": 1, "aten::addmm": 1, "aten::mm": 0, "aten::matmul": 0, "aten::bmm": 0, "aten::lstm": 0,
    "aten::gru": 0,
}  # fmt: skip
"""Operators that a model begins with, and which of their inputs is the data (native_functions.yaml)."""


def batch(profile: Profile) -> str | None:
    """Samples of a batch as the DataLoader gave them, else the shape of what the first matrix operator works on.

    None when neither was recorded.
    """
    given = profile.table("batches")
    sizes = given.loc[~given["validation"].fillna(False).astype(bool), "size"].dropna()
    if len(sizes):
        return f"{int(sizes.mode().iloc[0])} samples"
    ops = profile.table("ops")
    shaped = ops[ops["name"].isin(_INPUT) & ops["shapes"].notna() & ops["phase"].eq("forward")]
    if shaped.empty:
        return None
    first = shaped.sort_values("start_ns").iloc[0]
    try:
        shapes = json.loads(first["shapes"])
        return "×".join(str(int(size)) for size in shapes[_INPUT[first["name"]]]) or None
    except (ValueError, TypeError, IndexError):
        return None
