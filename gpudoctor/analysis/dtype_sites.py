"""Lines of the user's source that make float64 tensors: where a float64 step may come from.

Operators tell that a step computes in float64, not who made the tensors: that was before the step. So the source says
it. A site is `explicit` when the line names the dtype (`.double()`, `dtype=torch.float64`, `.to(torch.float64)`,
`set_default_dtype(torch.float64)`) and `possible` when it takes over the dtype of NumPy, whose default is float64
(`torch.from_numpy`, `torch.as_tensor`, `torch.tensor` of something that is not a literal).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

_NAMES = frozenset({"float64", "double"})
_TAKES_OVER = frozenset({"from_numpy", "as_tensor", "tensor", "asarray"})
_CONVERSIONS = frozenset({"to", "type", "astype", "set_default_dtype"})


def rows(sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of `dtype_sites` from the user's source files; a file that does not parse has none."""
    made = []
    for file, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        for node, function in _calls(tree, None):
            kind = _kind(node)
            if kind is not None:
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


def _kind(call: ast.Call) -> str | None:
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
    if any(_is_float64(value) for value in dtypes) or (name in _CONVERSIONS and any(map(_is_float64, call.args))):
        return "explicit"
    if name in _TAKES_OVER and not dtypes and _from_torch(call.func) and call.args and not _literal(call.args[0]):
        return "possible"
    return None


def _is_float64(value: ast.expr) -> bool:
    """`torch.float64`, `np.double`, `float64`, or the string "float64"."""
    if isinstance(value, ast.Attribute):
        return value.attr in _NAMES
    if isinstance(value, ast.Constant):
        return value.value in _NAMES
    return isinstance(value, ast.Name) and value.id in _NAMES


def _from_torch(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch"


def _literal(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.ListComp)
