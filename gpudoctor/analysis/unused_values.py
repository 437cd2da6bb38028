"""Statements of the user's whose value nobody reads, and whose autograd nodes no backward call reached.

Both are needed: the source says that the assigned names are never loaded (or only by statements that are unused
themselves), the profiled steps that backward never came there, and what it took. A value that is returned, stored in a
container or an attribute, printed or passed on counts as read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.columns import MISSING
from gpudoctor.profile import frame

_KEEPS_STATE = ("aten::batch_norm", "aten::native_batch_norm", "aten::_batch_norm_with_update", "aten::instance_norm")
"""Operators that change running statistics: their call may be wanted for that alone."""

_READ_ALL = ("locals", "globals", "vars", "eval", "exec")
"""Functions that read names which the source does not show."""

_Assign = ast.Assign | ast.AnnAssign | ast.AugAssign
_Key = tuple[str, int]


@dataclass(slots=True)
class _Line:
    """What ran on a line of the user's, or in a module: times of outermost operators in nanoseconds."""

    ns: int = 0
    nodes: int = 0
    reached: bool = False
    state: bool = False
    events: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Statement:
    file: str
    node: _Assign
    scope: ast.AST
    line: _Line


def rows(ops: pd.DataFrame, sources: Mapping[str, str]) -> pd.DataFrame:
    """The table `unused_values`.

    Args:
        ops: the table `ops`; operators of detail steps with an exact line count.
        sources: the user's files.
    """
    detail = ops[frames.is_one_of(ops, "observation", "detail")].reset_index(drop=True)
    steps = int(detail["step"].nunique())
    if not steps:
        return frame("unused_values", [])
    lines, modules = _what_ran(detail)
    candidates: list[_Statement] = []
    for file, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        candidates += _candidates(file, tree, lines, modules)
    made = [
        {
            "file": one.file,
            "line": one.node.lineno,
            "function": getattr(one.scope, "name", None),
            "names": ", ".join(_text(target) for target in _targets(one.node)),
            "nodes": round(one.line.nodes / steps),
            "dur_ns": round(one.line.ns / steps),
            "op": min(one.line.events),
        }
        for one in _unread(candidates)
    ]
    return frame("unused_values", sorted(made, key=lambda row: (row["file"], row["line"])))


def _what_ran(ops: pd.DataFrame) -> tuple[dict[_Key, _Line], dict[str, _Line]]:
    """Lines, and the modules by path (with those inside of them), of the forward passes."""
    forward = frames.is_one_of(ops, "phase", "forward", "other")
    made, reached, outer = _nodes(ops, forward), _reached(ops), _outermost(ops, forward)
    state = frames.is_one_of(ops, "name", *_KEEPS_STATE)
    files, paths = ops["file"].astype(object), ops["module_path"].astype(object)
    exact = frames.is_one_of(ops, "precision", "call") & ops["region"].isna().to_numpy()
    numbers, ids, durations = (frames.integers(ops, name) for name in ("line", "op", "dur_ns"))
    lines: dict[_Key, _Line] = {}
    modules: dict[str, _Line] = {}
    for row in np.flatnonzero(forward & exact & (numbers != MISSING)).tolist():
        places = [lines.setdefault((str(files.iat[row]), int(numbers[row])), _Line())]
        if isinstance(path := paths.iat[row], str):
            parts = path.split(".")
            places += [modules.setdefault(".".join(parts[: at + 1]), _Line()) for at in range(len(parts))]
        for place in places:
            place.nodes += int(made[row])
            place.reached |= bool(reached[row])
            place.state |= bool(state[row])
            if outer[row]:
                place.ns += int(durations[row])
                place.events.append(int(ids[row]))
    return lines, modules


def _nodes(ops: pd.DataFrame, forward: Any) -> Any:
    """Operators that made an autograd node: the last of its number, when a larger number follows in that step."""
    made = np.zeros(len(ops), bool)
    sequence, step, thread = (frames.integers(ops, name) for name in ("sequence", "step", "thread"))
    rows = np.flatnonzero(forward & (sequence != MISSING) & (sequence >= 0))
    order = rows[np.lexsort((frames.integers(ops, "start_ns")[rows], step[rows], thread[rows]))]
    if len(order) > 1:
        before, after = order[:-1], order[1:]
        same = (step[before] == step[after]) & (thread[before] == thread[after])
        made[before] = same & (sequence[after] > sequence[before])
    return made


def _reached(ops: pd.DataFrame) -> Any:
    """Operators whose node a backward operator ran."""
    wanted = frames.integers(ops, "forward_op")
    return np.isin(frames.integers(ops, "op"), wanted[wanted != MISSING])


def _outermost(ops: pd.DataFrame, forward: Any) -> Any:
    parent = frames.rows_of(frames.integers(ops, "op"), frames.integers(ops, "parent"))
    return forward & ((parent < 0) | ~forward[parent])


def _candidates(
    file: str, tree: ast.Module, lines: Mapping[_Key, _Line], modules: Mapping[str, _Line]
) -> Iterator[_Statement]:
    """Assignments whose operators backward never reached: on their own lines, or in the module that they call."""
    for node, scope in _assignments(tree, tree):
        ran = [one for at in range(node.lineno, (node.end_lineno or node.lineno) + 1) if (one := lines.get((file, at)))]
        called = {call.func.attr for call in _calls(node) if isinstance(call.func, ast.Attribute)}
        ran += [one for path, one in modules.items() if path.rpartition(".")[2] in called and one not in ran]
        whole = _Line(
            max((one.ns for one in ran), default=0),
            max((one.nodes for one in ran), default=0),
            any(one.reached for one in ran),
            any(one.state for one in ran),
            [event for one in ran for event in one.events],
        )
        names = [_text(target) for target in _targets(node)]
        meant = all(name.startswith("_") for name in names)  # called for what it does, not for what it returns
        if whole.nodes and whole.events and not (whole.reached or whole.state or meant):
            yield _Statement(file, node, scope, whole)


def _assignments(node: ast.AST, scope: ast.AST) -> Iterator[tuple[_Assign, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else scope
        if isinstance(child, _Assign) and child.value is not None:
            yield child, scope
        yield from _assignments(child, inner)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def _targets(node: _Assign) -> list[ast.expr]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = []
    for target in targets:
        flat += target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return flat


def _text(target: ast.expr) -> str:
    return ast.unparse(target)


def _unread(candidates: list[_Statement]) -> list[_Statement]:
    """The candidates that nothing reads but candidates of which the same is true."""
    left = candidates
    while True:
        kept = [one for one in left if not any(_read(target, one, left) for target in _targets(one.node))]
        if len(kept) == len(left):
            return kept
        left = kept


def _read(target: ast.expr, one: _Statement, unread: list[_Statement]) -> bool:
    ignored = {id(inner) for other in unread for inner in ast.walk(other.node)}
    if not isinstance(target, ast.Name):
        return True  # an element of something, or an attribute, which a library may read
    for node in ast.walk(one.scope):
        if isinstance(node, ast.Global | ast.Nonlocal) and target.id in node.names:
            return True
        loaded = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in ignored
        if loaded and getattr(node, "id", "") in (target.id, *_READ_ALL):
            return True
    return False
