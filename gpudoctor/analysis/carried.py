"""Which names carry a value from one iteration of a loop to the next: a recurrence cannot become one call.

A name (or `self.state`, or an element of a list or tensor) is carried when the body may read it before it assigns it,
and assigns it as well. What is only added up, concatenated or counted is not: a sum over the whole tensor does the
same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_GATHERS = frozenset(
    {"add", "maximum", "minimum", "max", "min", "logaddexp", "logical_or", "logical_and"}
    | {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
)
"""Functions under which iterations can be put together in any order, or at once."""

_GROWS = frozenset({"append", "extend"})


def names(loop: ast.For | ast.AsyncFor | ast.While) -> tuple[str, ...]:
    """What an iteration reads of the one before, sorted."""
    assigned = {text for node in _walk(loop.body) for text in _stored(node)}
    targets = {node.id for node in ast.walk(getattr(loop, "target", loop.body[0])) if isinstance(node, ast.Name)}
    targets = targets if not isinstance(loop, ast.While) else set()
    found: set[str] = set()
    _block(loop.body, set(targets), assigned - targets, found)
    return tuple(sorted(found | _elements(loop, targets)))


def _walk(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for statement in body:
        yield from ast.walk(statement)


def _stored(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield ast.unparse(node)


def _block(body: Sequence[ast.stmt], known: set[str], assigned: set[str], found: set[str]) -> None:
    """Goes through statements in order; `known` are the names that are certainly assigned in this iteration."""
    for statement in body:
        parts = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if any(parts):
            for head in ("test", "iter", "items", "subject"):
                value = getattr(statement, head, None)
                for one in value if isinstance(value, list) else [value]:
                    if one is not None:
                        _read(one, known, assigned, found)
            inner = [set(known) for _ in parts]
            for target in ast.walk(getattr(statement, "target", ast.Pass())):
                inner[0] |= set(_stored(target))
            for one, after in zip(parts, inner, strict=True):
                _block(one, after, assigned, found)
            if isinstance(statement, ast.If) and statement.orelse:
                known |= inner[0] & inner[1]
            elif isinstance(statement, ast.With | ast.AsyncWith):
                known |= inner[0]
            continue
        own = _gathered(statement)
        if own is None:
            _read(statement, known, assigned, found)
        else:
            _read(statement, known | {own}, assigned, found)
            continue  # what it holds before and behind is that of all iterations so far
        known |= {text for node in ast.walk(statement) for text in _stored(node)}


def _read(node: ast.AST, known: set[str], assigned: set[str], found: set[str]) -> None:
    for one in ast.walk(node):
        if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Load):
            text = ast.unparse(one)
            if text in assigned and text not in known:
                found.add(text)
        elif isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name | ast.Attribute):
            text = ast.unparse(one.target)
            if text in assigned and text not in known:
                found.add(text)


def _gathered(statement: ast.stmt) -> str | None:
    """The name that a statement only adds to, e.g. of `total += f(x)`, `out = torch.cat([out, y])`, `i += 1`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub):
        own = ast.unparse(statement.target)
        return own if own not in _texts(statement.value) else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    own, value = ast.unparse(statement.targets[0]), statement.value
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        parts = [value.left, value.right] if isinstance(value.op, ast.Add) else [value.left]
    elif isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if name in _GATHERS:
            parts = [*value.args, *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
            parts = [one for part in parts for one in (part.elts if isinstance(part, ast.List | ast.Tuple) else [part])]
    direct = [one for one in parts if ast.unparse(one) == own]
    return own if len(direct) == 1 and _texts(value).count(own) == 1 else None


def _texts(node: ast.AST) -> list[str]:
    return [ast.unparse(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute | ast.Subscript)]


def _elements(loop: ast.For | ast.AsyncFor | ast.While, targets: set[str]) -> set[str]:
    """Lists and tensors of which the body reads an element that another iteration may have written."""
    added = {id(node.target) for node in _walk(loop.body) if isinstance(node, ast.AugAssign)}
    written: dict[str, set[str]] = {}
    read: dict[str, set[str]] = {}
    shared = set()  # an element that is the same in each iteration
    for node in _walk(loop.body):
        if isinstance(node, ast.Subscript) and id(node) not in added:
            base = ast.unparse(node.value)
            (written if isinstance(node.ctx, ast.Store) else read).setdefault(base, set()).add(ast.unparse(node.slice))
            if not targets & {one.id for one in ast.walk(node.slice) if isinstance(one, ast.Name)}:
                shared.add(base)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            written.setdefault(ast.unparse(node.func.value), set()).add("")
    fresh = {text for node in _walk(loop.body) for text in _stored(node)}  # of these the names say what is carried
    both = (written.keys() & read.keys()) - fresh
    return {base for base in both if base in shared or written[base] != read[base]}
