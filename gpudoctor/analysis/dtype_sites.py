"""Lines of the user's source that make float64 tensors: where a float64 step may come from.

Operators tell that a step computes in float64, not who made the tensors: that was before the step. So the source says
it. A site is `explicit` when the line names the dtype (`.double()`, `dtype=torch.float64`, `.to(torch.float64)`,
`set_default_dtype(torch.float64)`, or a name that the file gives it: `DTYPE = torch.float64`) and `possible` when it
takes over the dtype of NumPy, whose default is float64 (`torch.from_numpy`, `torch.as_tensor`, `torch.tensor` of
something that is not a literal), and nothing names the dtype of the result in the same expression.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping
from typing import Any

_NAMES = frozenset({"float64", "double"})
_TAKES_OVER = frozenset({"from_numpy", "as_tensor", "tensor", "asarray"})
_CONVERSIONS = frozenset({"to", "type", "astype", "set_default_dtype"})
_CONVERTS = frozenset({"double", "float", "half", "bfloat16", "long", "int", "bool"})
_DTYPES = _NAMES | {"float32", "float16", "half", "float", "bfloat16", "int64", "long", "int32", "int", "bool"}


def rows(sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of `dtype_sites` from the user's source files; a file that does not parse has none."""
    made = []
    for file, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        names = _named(tree)
        converted = {id(inner) for call in ast.walk(tree) if isinstance(call, ast.Call) for inner in _inside(call)}
        made += [{"file": file, "line": line, "dtype": "float64", "kind": "explicit"} for line in names.values()]
        for node, function in _calls(tree, None):
            kind = _kind(node, names)
            if kind is not None and not (kind == "possible" and id(node) in converted):
                # the attribute of a long chain stands at its end: `nn.Sequential(…).double()`
                line = node.func.end_lineno if isinstance(node.func, ast.Attribute) else node.lineno
                made.append({"file": file, "line": line, "function": function, "dtype": "float64", "kind": kind})
    return made


def _calls(node: ast.AST, function: str | None) -> Iterator[tuple[ast.Call, str | None]]:
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = child.name if function is None else f"{function}.{child.name}"
        if isinstance(child, ast.Call):
            yield child, function
        yield from _calls(child, inner)


def _named(tree: ast.AST) -> dict[str, int]:
    """Names that the file gives float64 to, with the line: one that is given anything else as well is none."""
    lines: dict[str, int] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Attribute):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name) and _is_float64(node.value, ()):
            lines[target.id] = node.lineno
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {name: line for name, line in lines.items() if stored.count(name) == 1}


def _inside(call: ast.Call) -> Iterator[ast.AST]:
    """What a conversion converts, to whatever dtype: the calls in front of it in its chain, not their arguments."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in _CONVERTS and not (name in ("to", "type") and any(map(_is_dtype, _given(call)))):
        return
    at: ast.AST = call.func
    while isinstance(at, ast.Attribute | ast.Call):
        at = at.value if isinstance(at, ast.Attribute) else at.func
        if isinstance(at, ast.Call):
            yield at


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_dtype(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in _DTYPES


def _kind(call: ast.Call, names: Container[str]) -> str | None:
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    if name == "double" and not call.args:
        return "explicit"
    dtypes = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"]
    positional = call.args if name in _CONVERSIONS else []
    if any(_is_float64(value, names) for value in (*dtypes, *positional)):
        return "explicit"
    if name in _TAKES_OVER and not dtypes and _from_torch(call.func) and call.args and not _literal(call.args[0]):
        return "possible"
    return None


def _is_float64(value: ast.expr, names: Container[str]) -> bool:
    """`torch.float64`, `np.double`, `float64`, the string "float64", or one of the names."""
    if isinstance(value, ast.Attribute):
        return value.attr in _NAMES
    if isinstance(value, ast.Constant):
        return value.value in _NAMES
    return isinstance(value, ast.Name) and (value.id in _NAMES or value.id in names)


def _from_torch(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch"


def _literal(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.ListComp)
