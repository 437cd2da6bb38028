"""User lines of light steps, taken from the detail steps of the same recording.

A light step is profiled without stacks and line marks, so its operators have no line, and neither have the kernels,
copies and waits that they launched. The same loop ran in the detail steps, with lines. An operator of a light step
takes over the line of the operators of the detail steps that were called in the same surroundings:

1. Where a thread called the same operators in the same order and nesting as in a detail step, position by position.
2. Elsewhere (a step that logs, another batch) by its neighbours: the operators that have the same calls before and
   behind them. One that is repeated more often than in any detail step is no match there: the surplus comes from a line
   that no detail step ran.

What several candidates disagree about stays null: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded

RADII = (16, 5)
"""How many calls before and behind an operator have to be the same; the wider first. Five: less is alike by chance
where layers repeat (linear, t, addmm, relu is four calls)."""

PLACE = ("file", "line")
"""What candidates must agree about before anything is taken over."""

DETAILS = ("precision", "function", "module", "module_path", "owner", "caller_file", "caller_function")
"""What comes along where they agree about it too."""

LAUNCHED = ("kernels", "runtime_calls", "collectives")
"""Tables whose rows have the line of the operator that launched them."""

_ONLY_IN_DETAIL = ("gpudoctor::", "Tensor.")
"""What the recorder's marks and torch's Python tracer add to a detail step."""

_PRIME = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd: the usual multiplier of multiplicative hashing

_Ints = NDArray[np.int64]
_Column = NDArray[Any] | Coded
_Table = MutableMapping[str, _Column]


@dataclass(frozen=True, slots=True)
class _Calls:
    """What one thread called in one step: rows of `ops` in time order; name and nesting of each as a number."""

    step: int
    thread: int
    rows: _Ints
    tokens: _Ints


def fill(tables: MutableMapping[str, dict[str, _Column]]) -> None:
    """Gives rows of light steps their lines, in `ops` and in the tables that hang on it.

    Args:
        tables: columns of a recording's tables by name, changed in place; an operator's id is its row.
    """
    ops = tables.get("ops")
    if not ops:
        return
    detail = _is(ops["observation"], "detail")
    if detail.all() or not detail.any():
        return
    for name in ("name", *PLACE, *DETAILS):
        ops[name] = _own_copy(ops[name])
    calls = list(_calls(ops))
    for thread in {one.thread for one in calls}:
        mine = [one for one in calls if one.thread == thread]
        models = [one for one in mine if detail[one.rows[0]]]
        if models:
            for light in (one for one in mine if not detail[one.rows[0]]):
                _take_over(ops, light, models)
    for name in LAUNCHED:
        if table := tables.get(name):
            _relabel(table, ops)


def _take_over(ops: _Table, light: _Calls, models: list[_Calls]) -> None:
    equal = [model for model in models if np.array_equal(model.tokens, light.tokens)]
    if equal:
        positions = np.tile(np.arange(len(light.rows)), len(equal))
        _copy(ops, light.rows, np.concatenate([model.rows for model in equal]), positions)
        return
    left = light
    for radius in RADII:
        contexts = _contexts(light.tokens, radius)[np.searchsorted(light.rows, left.rows)]
        known, group, count = np.unique(contexts, return_inverse=True, return_counts=True)
        most = np.zeros(len(known), np.int64)
        rows, groups = [], []
        for model in models:
            theirs = _contexts(model.tokens, radius)
            at = np.minimum(np.searchsorted(known, theirs), len(known) - 1)
            hit = known[at] == theirs
            most = np.maximum(most, np.bincount(at[hit], minlength=len(known)))
            rows.append(model.rows[hit])
            groups.append(at[hit])
        sure = (most >= count)[group]
        number = np.cumsum(most >= count) - 1
        kept = (most >= count)[np.concatenate(groups)]
        _copy(
            ops, left.rows[sure], np.concatenate(rows)[kept], number[np.concatenate(groups)[kept]], number[group[sure]]
        )
        left = _Calls(left.step, left.thread, left.rows[~sure], left.tokens[~sure])
        if not len(left.rows):
            return


def _copy(ops: _Table, to: _Ints, candidates: _Ints, groups: _Ints, wanted: _Ints | None = None) -> None:
    """Writes what the candidates of each group agree about into the rows that want it.

    Args:
        ops: columns, changed in place.
        to: rows to fill.
        candidates: rows of detail steps.
        groups: the group of each candidate, numbered without holes.
        wanted: the group that each row to fill takes its place from; by default the row's position.
    """
    if not len(candidates):
        return
    order = np.argsort(groups, kind="stable")
    candidates = candidates[order]
    first = np.flatnonzero(np.diff(groups[order], prepend=-1))
    wanted = np.arange(len(to)) if wanted is None else wanted

    def agreed(column: _Column) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        cells = _cells(column)[candidates]
        low = np.minimum.reduceat(cells, first)
        return low, low == np.maximum.reduceat(cells, first)

    place = np.logical_and.reduce([agreed(ops[name])[1] for name in PLACE])
    for name in (*PLACE, *DETAILS):
        value, same = agreed(ops[name])
        take = (place & same)[wanted]
        _cells(ops[name])[to[take]] = value[wanted[take]]


def _calls(ops: _Table) -> Iterator[_Calls]:
    """Calls of each thread in each step, without those that only a detail step has."""
    name, step, thread, parent = (ops[column] for column in ("name", "step", "thread", "parent"))
    assert isinstance(name, Coded)
    step, thread, parent = _cells(step), _cells(thread), _cells(parent)
    extra = np.array([text.startswith(_ONLY_IN_DETAIL) for text in name.values] or [False], bool)[name.codes]
    depth = _cells(ops["depth"]) - _above(parent, extra)
    tokens = name.codes.astype(np.int64) * 256 + np.minimum(depth, 255)
    rows = np.flatnonzero((step != MISSING) & ~extra)
    rows = rows[np.lexsort((rows, thread[rows], step[rows]))]
    cuts = np.flatnonzero((np.diff(step[rows]) != 0) | (np.diff(thread[rows]) != 0)) + 1
    for part in np.split(rows, cuts):
        if len(part):
            yield _Calls(int(step[part[0]]), int(thread[part[0]]), part, tokens[part])


def _above(parent: _Ints, extra: NDArray[np.bool_]) -> _Ints:
    """How many calls that only a detail step has lie around each call."""
    count = np.zeros(len(parent), np.int64)
    at = parent if extra.any() else np.full(len(parent), MISSING)
    while len(inside := np.flatnonzero(at != MISSING)):
        count[inside] += extra[at[inside]]
        at = at.copy()
        at[inside] = parent[at[inside]]
    return count


def _contexts(tokens: _Ints, radius: int) -> NDArray[np.uint64]:
    """A hash of each call with its neighbours; there are none beyond the step's ends."""
    padded = np.zeros(len(tokens) + 2 * radius, np.uint64)
    padded[radius : radius + len(tokens)] = tokens.astype(np.uint64) + np.uint64(1)
    made = np.zeros(len(tokens), np.uint64)
    for shift in range(2 * radius + 1):
        made = made * _PRIME + (padded[shift : shift + len(tokens)] ^ (padded[shift : shift + len(tokens)] * _PRIME))
    return made


def _relabel(table: _Table, ops: _Table) -> None:
    """Places of rows that an operator launched are its own."""
    op = _cells(table["op"])
    known = op != MISSING
    row = np.where(known, op, 0)
    for name in PLACE:
        column = ops[name]
        cells = np.where(known, _cells(column)[row], -1 if isinstance(column, Coded) else MISSING)
        table[name] = Coded(cells, column.values) if isinstance(column, Coded) else cells


def _is(column: _Column, text: str) -> NDArray[np.bool_]:
    assert isinstance(column, Coded)
    return np.array([value == text for value in column.values] or [False], bool)[column.codes] & (column.codes >= 0)


def _cells(column: _Column) -> NDArray[Any]:
    return column.codes if isinstance(column, Coded) else column


def _own_copy(column: _Column) -> _Column:
    """The column in memory of its own; each text has one code only."""
    if not isinstance(column, Coded):
        return column.copy()
    texts = {text: at for at, text in enumerate(dict.fromkeys(column.values))}
    number = np.array([*(texts[text] for text in column.values), -1], np.int32)  # the last one answers for null
    return Coded(number[column.codes], list(texts))
