"""What the lines in Python loops over operators cost: the table `loop_lines`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudoctor.analysis import flops, frames, op_loops, work
from gpudoctor.analysis.frames import Rows
from gpudoctor.analysis.intervals import Ints, Mask
from gpudoctor.analysis.op_loops import Calls, begins_with
from gpudoctor.analysis.source_loops import SourceLoops
from gpudoctor.columns import Coded

SLOW_BYTES_PER_NS, SLOW_FLOPS_PER_NS = 4.0, 4.0
"""A slow CPU's one thread: 4 GB/s from memory, 4 GFLOP/s without SIMD. What takes less work than its time says at these
rates is mostly call."""

_IDLE_OWNERS = ("launch", "python", "optimizer")


def rows(
    ops: pd.DataFrame, kernels: pd.DataFrame | None, gaps: pd.DataFrame | None, sources: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows of `loop_lines`; times and counts are means over the steps watched with lines.

    Args:
        ops: the table `ops`.
        kernels: the table `kernels`; None without a device.
        gaps: the table `gaps`; None without a device.
        sources: text of the user's files.
    """
    ops = ops[frames.is_one_of(ops, "observation", "detail")].reset_index(drop=True)
    if not len(ops):
        return []
    calls = Calls(ops)
    body = op_loops.bodies(calls)
    if not len(body):
        return []
    body = _with_sizes(_with_backward(body, calls), calls)
    if kernels is not None:
        body = _with_kernels(body, calls, kernels, gaps)
    return _rows(body, calls, SourceLoops(sources))


def measured(ops: pd.DataFrame) -> bool:
    """Whether the operators have the lines that called them, not only those of functions."""
    return bool((frames.is_one_of(ops, "observation", "detail") & frames.is_one_of(ops, "precision", "call")).any())


def _with_backward(body: pd.DataFrame, calls: Calls) -> pd.DataFrame:
    """Adds the time that backward spends on each call, and what passes between one call of a loop and the next."""
    nodes = np.flatnonzero(begins_with(calls.name.values, "autograd::engine::evaluate_function")[calls.name.codes])
    calls_of = _outermost(calls, frames.rows_of(calls.ids, frames.integers(calls.ops, "forward_op")[nodes]))
    spent = np.zeros(len(calls.ids) + 1, np.int64)
    np.add.at(spent, calls_of, calls.dur[nodes])  # the last cell takes what belongs to nobody
    body["forward_ns"], body["backward_ns"] = calls.dur[body["row"]], spent[body["row"]]
    outer = np.flatnonzero(calls.aten & (calls.outer == np.arange(len(calls.ids))))
    between = _between(outer, outer, body, calls) + _between(nodes, calls_of, body, calls)
    body["between_ns"] = between[body["row"]]
    return body


def _between(rows: Rows, belongs: Rows, body: pd.DataFrame, calls: Calls) -> Ints:
    """Time in which a thread is in a loop and in none of its operators: from the first to the last of them.

    It is Python's, autograd's and the profiler's, and goes with the calls when they become one. What calls that are not
    the loop's take meanwhile is left out.

    Args:
        rows: calls, as rows of the operators.
        belongs: the row of the operator of the loop that each stands for, itself or the one it is the backward of.
        body: the calls of loops: row, loop.
        calls: the operators.

    Returns:
        Nanoseconds by row of the operators, at the call behind the pause, and a last cell for those of nobody.
    """
    loop = np.full(len(calls.ids) + 1, -1, np.int64)
    loop[body["row"]] = body["loop"]
    order = np.lexsort((calls.start[rows], calls.thread[rows], calls.step[rows]))
    rows, belongs = rows[order], belongs[order]
    spent = np.zeros(len(calls.ids) + 1, np.int64)
    mine, start, end = loop[belongs], calls.start[rows], (calls.start + calls.dur)[rows]
    changes = [np.diff(column[rows], prepend=-1).astype(bool) for column in (calls.step, calls.thread)]
    lane = np.cumsum(changes[0] | changes[1])
    for number in np.unique(mine[mine >= 0]):
        for where in np.unique(lane[mine == number]):
            own = np.flatnonzero((mine == number) & (lane == where))
            inside = np.arange(own[0], own[-1] + 1)
            pauses = np.maximum(start[inside][1:] - np.maximum.accumulate(end[inside])[:-1], 0)
            behind = np.minimum(np.searchsorted(own, inside[1:]), len(own) - 1)  # the loop's next call
            np.add.at(spent, belongs[own[behind]], pauses)
    return spent


def _with_sizes(body: pd.DataFrame, calls: Calls) -> pd.DataFrame:
    """Adds the own times of what computes in each call, the operators inside it included: a cell is made of many."""
    kind = frames.texts(calls.ops, "op_class")
    computes = np.array([*(text not in ("other", "memory") for text in kind.values), False], np.bool_)
    rows = np.flatnonzero(computes[kind.codes] & (calls.outer >= 0))
    own = np.maximum(frames.integers(calls.ops, "self_ns")[rows], 0)
    loop = pd.Series(body["loop"].to_numpy(), index=body["row"].to_numpy())
    loops = loop.reindex(calls.outer[rows]).to_numpy()
    body["median_op_ns"] = body["loop"].map(pd.Series(own).groupby(loops).median())
    body["median_work_ns"] = body["loop"].map(pd.Series(_work_ns(calls.ops, rows, own)).groupby(loops).median())
    return body


def _work_ns(ops: pd.DataFrame, rows: Rows, own: Ints) -> NDArray[np.float64]:
    """Time that each operator's work takes a slow CPU, by its sizes; its own time where its work is not known.

    One that has others of its kind do the work has none itself.

    Args:
        ops: the operators.
        rows: those asked for.
        own: their own times.
    """
    done = work.of_calls(ops)
    names = frames.texts(ops, "name")
    has_formula = np.array([*(flops.kind(text) is not None for text in names.values), False], np.bool_)
    spent = done.bytes / SLOW_BYTES_PER_NS + np.nan_to_num(done.flops) / SLOW_FLOPS_PER_NS
    spent = np.where(has_formula[names.codes] & ~done.owns, 0.0, spent)[rows]
    return np.where(np.isnan(spent), own, spent)


def _outermost(calls: Calls, rows: Rows) -> Rows:
    return np.where(rows >= 0, calls.outer[rows], -1)


def _with_kernels(body: pd.DataFrame, calls: Calls, kernels: pd.DataFrame, gaps: pd.DataFrame | None) -> pd.DataFrame:
    """Adds the kernels that each call and its backward launched, and how long the device waited for them."""
    forward = frames.rows_of(calls.ids, frames.integers(calls.ops, "forward_op"))
    belongs = _outermost(calls, np.where(forward >= 0, forward, np.arange(len(calls.ids))))

    def spent(table: pd.DataFrame, wanted: Mask) -> tuple[Ints, Ints]:
        at = frames.rows_of(calls.ids, frames.integers(table, "op")[wanted])
        owner = np.where(at >= 0, belongs[at], -1)
        time, count = np.zeros(len(calls.ids) + 1, np.int64), np.zeros(len(calls.ids) + 1, np.int64)
        np.add.at(time, owner, frames.integers(table, "dur_ns")[wanted])
        np.add.at(count, owner, 1)
        return time[body["row"]], count[body["row"]]

    body["kernel_ns"], body["kernels"] = spent(kernels, frames.is_one_of(kernels, "kind", "kernel"))
    if gaps is not None:
        body["idle_ns"] = spent(gaps, frames.is_one_of(gaps, "owner", *_IDLE_OWNERS))[0]
    return body


def _rows(body: pd.DataFrame, calls: Calls, sources: SourceLoops) -> list[dict[str, Any]]:
    """One row for each loop and line; a loop is known again in the next step by its first line."""
    steps = len(np.unique(calls.step))
    function, path = frames.texts(calls.ops, "function"), frames.texts(calls.ops, "module_path")
    first = body.groupby("loop")[["file", "line"]].min()
    body["key"] = body["loop"].map(first.apply(tuple, axis=1))
    made: list[dict[str, Any]] = []
    for number, (_, loop) in enumerate(body.groupby("key", sort=True)):
        median = loop["median_op_ns"].median()
        if np.isnan(median):  # nothing but views
            continue
        walks = loop.sort_values("pieces", kind="stable").iloc[-1]
        shared: dict[str, Any] = {
            "loop": number,
            "iterations": int(loop["iterations"].max()),
            "pieces": int(walks["pieces"]) or None,
            "along": walks["along"] if walks["pieces"] else None,
            "sizes": int(loop.groupby("call")["shape"].nunique().max()),
            "median_op_ns": int(median),
            "median_work_ns": int(loop["median_work_ns"].median()),
            **_head(loop, calls.file.values, sources),
        }
        for _, part in loop.groupby(["file", "line"]):
            where = int(part["row"].iloc[0])
            row = shared | {
                "file": _text(calls.file, where),
                "line": int(calls.line[where]),
                "function": _text(function, where),
                "module_path": _text(path, where),
                "operators": len(part) // steps,
                **{name: int(part[name].sum()) // steps for name in _SUMS if name in part},
            }
            made.append(row)
    return made


_SUMS = ("forward_ns", "backward_ns", "between_ns", "kernels", "kernel_ns", "idle_ns")


def _text(column: Coded, row: int) -> str | None:
    code = int(column.codes[row])
    return column.values[code] if code >= 0 else None


def _head(loop: pd.DataFrame, files: Sequence[str], sources: SourceLoops) -> dict[str, Any]:
    """The loop in the source that runs most of the calls."""
    calls = loop.groupby(["file", "line"], as_index=False).size().sort_values("size", ascending=False, kind="stable")
    for file, line in zip(calls["file"].tolist(), calls["line"].tolist(), strict=True):
        found = sources.around(files[file], line)
        if found is not None:
            place = {"loop_file": files[file], "loop_line": found.line, "head": found.head}
            return place | {"carried": ", ".join(found.carried) or None}
    return {}
