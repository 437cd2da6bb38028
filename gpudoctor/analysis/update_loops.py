"""Updates that go through the parameters one by one on a CPU: the table `update_loops`.

Two kinds. An optimizer of torch's whose step has neither a fused kernel nor `_foreach_` operators. And in-place
arithmetic that the user's own code calls many times from one line: in the step of an optimizer class of their own, or
where no optimizer steps at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.analysis.source_loops import SourceLoops

Row = Mapping[str, Any]

_STEP = re.compile(r"Optimizer\.step#(.*)\.step$")
_WHOLE = re.compile(r"aten::_(?:fused|foreach)_")
_IN_PLACE = re.compile(r"aten::(?:add|sub|mul|div|addcmul|addcdiv|lerp|copy)_$")
_ZEROS = ("aten::zero_", "aten::_foreach_zero_")
_COLUMNS = ["op", "name", "start_ns", "dur_ns", "parent", "thread", "region", "file", "line", "function"]
_COLUMNS += ["caller_function", "owner", "precision"]


def rows(
    ops: pd.DataFrame, steps: Sequence[Row], optimizers: Sequence[Row], sources: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows of `update_loops`.

    Args:
        ops: the table `ops`.
        steps: rows of `steps`.
        optimizers: rows of `optimizers`.
        sources: text of the user's files.
    """
    updates = _updates(ops)
    watched = [step for step in steps if step["observation"] == "detail"]
    total_ns = sum(step["dur_ns"] for step in watched) or 1
    made = []
    for kind in sorted({str(row["kind"] or "") for row in updates}):
        own = [row for row in updates if (row["kind"] or "") == kind]
        if any(_WHOLE.match(row["name"]) for row in own):
            continue
        known = [row for row in optimizers if row["kind"] == kind]
        built = max(known, key=lambda row: row["parameters"] or 0, default=None)
        if built is not None and built["of_torch"]:
            row = _of_torch(own, built) | {"share": _share(own, updates, steps, total_ns)}
        else:
            row = _by_hand(own, SourceLoops(sources), kind or None, len(watched))
            row |= {"share": _share(own, updates, steps, total_ns) if kind else _spent(own) / total_ns}
        if row.get("line") is not None:
            made.append(row | {"operators": len(own) // max(1, len(watched))})
    return made


def _updates(ops: pd.DataFrame) -> list[dict[str, Any]]:
    """ATen operators of the optimizer's phase that no other calls, and the class whose step is around each."""
    wanted = frames.is_one_of(ops, "observation", "detail") & frames.is_one_of(ops, "phase", "optimizer")
    few = ops.loc[wanted, _COLUMNS].astype(object)
    found: list[dict[str, Any]] = few.where(few.notna(), None).to_dict("records")  # type: ignore[assignment]
    inner = {row["op"] for row in found if row["name"].startswith("aten::")}
    steps = [(match[1], row) for row in found if (match := _STEP.match(row["name"]))]
    return [
        row | {"kind": _kind(row, steps)}
        for row in found
        if row["name"].startswith("aten::")
        and row["parent"] not in inner
        and row["region"] is None
        # filling gradients with zeros is GD505's, and no part of an update
        and row["name"] not in _ZEROS
        and row["caller_function"] != "zero_grad"
    ]


def _kind(row: Row, steps: Sequence[tuple[str, Row]]) -> str | None:
    for kind, step in steps:
        if row["thread"] == step["thread"] and 0 <= row["start_ns"] - step["start_ns"] < step["dur_ns"]:
            return kind
    return None


def _spent(rows: Sequence[Row]) -> int:
    return sum(row["dur_ns"] or 0 for row in rows)


def _of_torch(own: Sequence[Row], built: Row) -> dict[str, Any]:
    called = next((row for row in own if row["line"] is not None), {})
    count = int(built["parameters"] or 0)
    return {
        "optimizer": built["kind"],
        **{name: built.get(name) for name in ("file", "line", "function")},
        "other_file": called.get("file"),
        "other_line": called.get("line"),
        "by_hand": False,
        "asked": built["foreach"] is False or built["fused"] is False,
        "parameters": count,
        "mean_elements": int(built["elements"]) // count if count and built["elements"] is not None else None,
    }


def _share(own: Sequence[Row], updates: Sequence[Row], steps: Sequence[Row], total_ns: int) -> float:
    """Of the unprofiled steps, whose optimizer times are known, that part which this optimizer's operators took."""
    bare = [step for step in steps if step["observation"] == "bare" and not step["warmup"]]
    inside = median(step["optimizer_ns"] or 0 for step in bare) if bare else 0
    if not inside:
        return _spent(own) / total_ns
    part = _spent(own) / (_spent([row for row in updates if row["kind"]]) or 1)
    return part * inside / (median(step["dur_ns"] for step in bare) or 1)


def _by_hand(own: Sequence[Row], sources: SourceLoops, kind: str | None, watched: int) -> dict[str, Any]:
    """The line of the user's that computes most, and how many tensors it updates; empty where the user's does none."""
    mine = [row for row in own if row["owner"] == "user" and row["line"] is not None and row["precision"] == "call"]
    calls = Counter((row["file"], row["line"], row["name"]) for row in mine if _IN_PLACE.match(row["name"]))
    if not calls:
        return {}
    spent: Counter[tuple[str, int]] = Counter()
    for row in mine:
        spent[row["file"], row["line"]] += row["dur_ns"] or 0
    file, line = spent.most_common(1)[0][0]
    head = sources.around(file, line)
    return {
        "optimizer": kind,
        "file": file,
        "line": int(line),
        "function": next(row["function"] for row in mine if (row["file"], row["line"]) == (file, line)),
        "other_file": file if head else None,
        "other_line": head.line if head else None,
        "by_hand": True,
        "asked": False,
        "parameters": calls.most_common(1)[0][1] // max(1, watched),
    }
