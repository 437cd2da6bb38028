"""Joins Inductor's output code with the trace: how long its kernels and calls ran, and for which of the user's lines.

On a GPU a kernel has its name in the trace. On a CPU a call is known by the line of the generated file that made it;
a generated C++ kernel shows only where `torch._inductor.config.cpp.enable_kernel_profile` is set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpudoctor.ingest.inductor_code import CodeTables, Row

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("file", "line", "function", "precision")


def join(code: CodeTables, traced: Mapping[str, pd.DataFrame]) -> None:
    """Fills `launches_per_step` and `time_ns`, and puts the user's line wherever the trace points at generated code.

    Args:
        code: what was read of the output code; its rows are changed.
        traced: tables from the trace; those with `file` and `line` are changed.
    """
    ops, kernels = traced.get("ops"), traced.get("kernels")
    if ops is not None:
        _measure_host(code, ops)
    if kernels is not None:
        lines = _measure_device(code, kernels, ops)
        _fill(kernels, lines)
    generated = {file for file, _ in code.places}
    for table in traced.values():
        if "file" in table and "line" in table and generated:
            _replace(table, generated, code)


def _measure_host(code: CodeTables, ops: pd.DataFrame) -> None:
    """Time of what runs at the lines of the generated files; one operator inside another counts once."""
    files = sorted({file for file, _ in code.places})
    inside = ops[ops["file"].isin(files) & ops["line"].notna()]
    if not len(inside):
        return
    steps = int(inside["step"].nunique()) or 1
    place = dict(zip(inside["op"], zip(inside["file"].astype(str), inside["line"], strict=True), strict=True))
    spent: dict[int, list[int]] = defaultdict(list)
    for op, parent, name, ns in zip(inside["op"], inside["parent"], inside["name"], inside["dur_ns"], strict=True):
        at = place[op]
        if at not in code.places or place.get(parent) == at:
            continue
        row, _ = code.places[at]
        if "kernel" not in row or str(name).endswith(row["kernel"]):
            spent[id(row)].append(int(ns))
    for row in (*code.kernels, *code.calls):
        if found := spent.get(id(row)):
            row |= {"launches_per_step": len(found) / steps, "time_ns": sum(found) // steps}


def _measure_device(code: CodeTables, kernels: pd.DataFrame, ops: pd.DataFrame | None) -> dict[int, Row]:
    """Time of the generated kernels on the device; the rows by the position of their kernel in `kernels`."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in code.kernels:
        by_name[row["kernel"]].append(row)
    places = kernels["name"].isin(sorted(by_name)).to_numpy().nonzero()[0]
    mine = kernels.iloc[places]
    steps = int(kernels["step"].nunique()) or 1
    found: dict[int, Row] = {}
    spent: dict[int, list[int]] = defaultdict(list)
    unclear: set[int] = set()
    regions = _column(ops, "region")
    phases = _column(ops, "phase")
    for at, name, op, ns in zip(places.tolist(), mine["name"], mine["op"], mine["dur_ns"], strict=True):
        rows = _of_region(by_name[str(name)], regions.get(op), phases.get(op))
        if len(rows) == 1:
            found[at] = rows[0]
            spent[id(rows[0])].append(int(ns))
        else:
            unclear |= {id(row) for row in rows}
    for row in code.kernels:
        if row["kind"] != "cpp" and id(row) not in unclear:
            times = spent.get(id(row), [])
            row |= {"launches_per_step": len(times) / steps, "time_ns": sum(times) // steps}
    return found


def _column(ops: pd.DataFrame | None, name: str) -> dict[Any, str]:
    if ops is None:
        return {}
    known = ops[ops[name].notna()]
    return dict(zip(known["op"], known[name].astype(str), strict=True))


def _of_region(rows: Sequence[Row], region: str | None, phase: str | None) -> Sequence[Row]:
    """Graphs number their kernels alike: the region and the direction that launched a kernel tell its graph."""
    if len(rows) > 1 and phase in ("forward", "backward"):
        backward = phase == "backward"
        rows = [row for row in rows if (row["direction"] == "backward") == backward] or rows
    if len(rows) > 1 and region is not None:
        rows = [row for row in rows if row["compile_id"] == region] or rows
    return rows


def _fill(kernels: pd.DataFrame, rows: Mapping[int, Row]) -> None:
    """Gives a generated kernel without a line the line that most of it comes from."""
    bare = kernels["file"].isna().to_numpy()
    lines = {at: (row["file"], row["line"]) for at, row in rows.items() if bare[at] and row.get("file") is not None}
    _set(kernels, lines)


def _replace(table: pd.DataFrame, generated: set[str], code: CodeTables) -> None:
    """The user's line instead of a line of a generated file; null where it is not known."""
    places = table["file"].isin(sorted(generated)).to_numpy().nonzero()[0]
    inside = table.iloc[places]
    lines: dict[int, tuple[Any, ...]] = {}
    nowhere = (None, None, None, None)
    for at, file, line in zip(places.tolist(), inside["file"], inside["line"].fillna(0), strict=True):
        _, mine = code.places.get((str(file), int(line)), (None, None))
        lines[at] = (*mine, "call") if mine else nowhere
    _set(table, lines)


def _set(table: pd.DataFrame, lines: Mapping[int, tuple[Any, ...]]) -> None:
    if not lines:
        return
    rows = list(lines)
    names = _COLUMNS if "function" in table else _COLUMNS[:2]  # precision means something else in `kernels`
    for name, values in zip(names, zip(*lines.values(), strict=True), strict=False):
        column = table[name].astype(object)
        column.iloc[rows] = list(values)
        table[name] = column.astype("category" if table[name].dtype.name == "category" else table[name].dtype)
