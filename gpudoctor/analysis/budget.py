"""The step budget without a GPU: each nanosecond of a lightly profiled step has one owner.

The ruler is the thread that runs the loop. Owners: `input` (waiting for the next batch), `compile`, `optimizer`
(Optimizer.step and zero_grad, everything in them), `matmul` (matrix products, convolutions, attention), `operators`
(other operators), `framework` (autograd engine, compiled regions, annotations: around operators), `python` (the rest:
Python and libraries between operators). They add up to the step time exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MATRIX_CLASSES = frozenset({"gemm", "convolution", "attention"})
OWNERS = ("input", "compile", "optimizer", "matmul", "operators", "framework", "python")


def rows(steps: Sequence[Mapping[str, Any]], ops: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `step_budget` for every lightly profiled step."""
    made = []
    for step in steps:
        if step["observation"] != "light":
            continue
        inside = [op for op in ops if op["step"] == step["step"] and op["observation"] == "light"]
        if not inside:
            continue
        shares = _shares(step, inside)
        made += [{"step": step["step"], "owner": owner, "dur_ns": shares[owner]} for owner in OWNERS]
    return made


def _shares(step: Mapping[str, Any], inside: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    main = _main_thread(inside)
    shares = dict.fromkeys(OWNERS, 0)
    for op in inside:
        if op["thread"] == main:
            shares[_owner(op)] += op["self_ns"]
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


def _main_thread(inside: Sequence[Mapping[str, Any]]) -> int:
    """The thread with the most operator time."""
    time: dict[int, int] = {}
    for op in inside:
        time[op["thread"]] = time.get(op["thread"], 0) + op["self_ns"]
    return max(time, key=lambda thread: time[thread])


def _owner(op: Mapping[str, Any]) -> str:
    if op["phase"] in ("input", "optimizer"):
        return str(op["phase"])
    if op["op_class"] in MATRIX_CLASSES:
        return "matmul"
    return "operators" if str(op["name"]).startswith("aten::") else "framework"
