"""The step budget without a GPU: each nanosecond of a lightly profiled step has one owner.

The ruler is the thread that runs the loop. Owners: `input` (waiting for the next batch), `compile`, `optimizer`
(Optimizer.step and zero_grad, everything in them), `matmul` (matrix products, convolutions, attention), `operators`
(other operators), `framework` (autograd engine, compiled regions, annotations: around operators), `python` (the rest:
Python and libraries between operators). They add up to the step time exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

MATRIX_CLASSES = frozenset({"gemm", "convolution", "attention"})
OWNERS = ("input", "compile", "optimizer", "matmul", "operators", "framework", "python")


def rows(steps: Sequence[Mapping[str, Any]], ops: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of `step_budget` for every lightly profiled step; for those with stacks where there is no other.

    Args:
        steps: rows of `steps`.
        ops: the table `ops`.
    """
    watched = {step["observation"] for step in steps}
    wanted = "light" if "light" in watched else "detail"
    ops = ops[ops["observation"] == wanted]
    main = _main_threads(ops)
    ops = ops[ops["thread"] == ops["step"].map(main)]
    spent = ops["self_ns"].groupby([ops["step"], _owners(ops)]).sum()
    shares: dict[int, dict[str, int]] = {}
    for step, owner, ns in spent.reset_index().itertuples(index=False, name=None):
        shares.setdefault(int(step), dict.fromkeys(OWNERS, 0))[str(owner)] = int(ns)
    made = []
    for step in steps:
        if step["observation"] != wanted or step["step"] not in shares:
            continue
        balanced = _balanced(step, shares[step["step"]])
        made += [{"step": step["step"], "owner": owner, "dur_ns": balanced[owner]} for owner in OWNERS]
    return made


def _balanced(step: Mapping[str, Any], shares: dict[str, int]) -> dict[str, int]:
    """Shares that add up to the step: what no operator owns is compiling or Python."""
    total = int(step["dur_ns"])
    shares["compile"] = min(int(step.get("compile_ns") or 0), max(0, total - sum(shares.values())))
    rest = total - sum(shares.values())
    shares["python"] = max(0, rest)
    while rest < 0:  # the watch's clock and the trace's differ by microseconds: the largest owners give them back
        largest = max(shares, key=lambda owner: shares[owner])
        taken = min(shares[largest], -rest)
        shares[largest] -= taken
        rest += taken
    return shares


def _main_threads(ops: pd.DataFrame) -> dict[int, int]:
    """The thread with the most operator time, by step."""
    time = ops.groupby(["step", "thread"])["self_ns"].sum()
    return {int(step): int(thread) for step, thread in time.groupby(level=0).idxmax()}


def _owners(ops: pd.DataFrame) -> pd.Series[str]:
    kinds = ops[["phase", "op_class"]].astype(str)
    aten = ops["name"].astype(str).str.startswith("aten::")
    owner = np.select(
        [kinds["phase"] == "input", kinds["phase"] == "optimizer", kinds["op_class"].isin(MATRIX_CLASSES), aten],
        ["input", "optimizer", "matmul", "operators"],
        "framework",
    )
    return pd.Series(owner, index=ops.index, name="owner")
