"""Detaches what a statement adds to a sum or a list: `total += loss` becomes `total += loss.detach()`.

Certain only where the sum or list is a variable of one function (or of the module), everything that reads it turns it
into plain numbers, and what is added is certainly a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import full_name
from gpudoctor.engine.edits.tree import Function, Source
from gpudoctor.engine.edits.uses import HOST_METHODS, is_bound_at, is_host_value, uses

_READS = frozenset({"float", "int", "len", "bool", "print"})
_PASSES_ON = frozenset({"sum", "max", "min", "list", "tuple", "enumerate"})
_TORCH = frozenset({"torch.stack", "torch.cat", "torch.tensor", "torch.mean", "torch.sum"})
"""Functions whose result may be a tensor of what they are given: what is done with that is looked at."""


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the value that the one statement on the line adds detached."""
    name, value = _added(source, line)
    scope = source.scope(value)
    if not isinstance(scope, Function | cst.Module) or not _is_tensor(source, value, scope):
        raise NotCertainError("what is added is not certainly a tensor")
    _check_uses(source, name, value, scope)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "detach":
        return source.module
    inner = value
    if isinstance(value, cst.BinaryOperation | cst.UnaryOperation) and not value.lpar:
        inner = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return source.replace(value, cst.Call(cst.Attribute(inner, cst.Name("detach"))))


def _added(source: Source, line: int) -> tuple[str, cst.BaseExpression]:
    found = [node for node in source.nodes(cst.SimpleStatementLine) if source.covers(node, line)]
    match found:
        case [cst.SimpleStatementLine(body=[cst.AugAssign(target=cst.Name(value=name), value=value) as total])]:
            if isinstance(total.operator, cst.AddAssign):
                return name, value
        case [
            cst.SimpleStatementLine(
                body=[
                    cst.Expr(
                        cst.Call(
                            func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="append")),
                            args=[cst.Arg(keyword=None, star="", value=value)],
                        )
                    )
                ]
            )
        ]:
            return name, value
    raise NotCertainError("no sum in a variable and no append to one on the line")


def _is_tensor(source: Source, value: cst.BaseExpression, scope: cst.CSTNode) -> bool:
    """Whether a value has the method `detach`: arithmetic with a tensor gives one, and numbers have no `mean()`."""
    match value:
        case cst.BinaryOperation(left=left, right=right):
            return _is_tensor(source, left, scope) or _is_tensor(source, right, scope)
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            return _is_tensor(source, inner, scope)
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=method)) as function):
            full = full_name(source, function) or ""
            if full.startswith("torch."):
                return full.startswith(("torch.nn.functional.", "torch.linalg.")) or full.count(".") == 1
            return not full and method in _METHODS
        case cst.Name(value=name):
            return any(
                isinstance(parent := source.parent(use), cst.Attribute)
                and parent.value is use
                and parent.attr.value == "backward"
                for use in uses(source, name, scope)
            )
        case _:
            return False


_METHODS = frozenset(
    {"mean", "sum", "square", "abs", "pow", "sqrt", "exp", "log", "norm", "var", "std", "float", "half", "squeeze"}
    | {"unsqueeze", "view", "reshape", "flatten", "softmax", "sigmoid", "tanh", "relu", "clamp", "detach", "clone"}
)
"""Methods of tensors that give tensors; of NumPy's arrays too, which have no graph and keep none."""


def _check_uses(source: Source, name: str, value: cst.BaseExpression, scope: cst.CSTNode) -> None:
    """Whether everything else that meets the variable only reads numbers off it.

    Raises:
        NotCertainError: something does not, or may be in another function.
    """
    statement = source.statement(value)
    for use in uses(source, name, source.module if isinstance(scope, cst.Module) else scope):
        if source.statement(use) is statement:
            if any(node is use for node in source.all_nodes(value)):
                raise NotCertainError(f"{name} is part of what is added to it")
            continue
        if source.scope(use) is not scope or isinstance(source.parent(use), cst.NameItem):
            raise NotCertainError(f"another function uses {name}")
        if not (_is_start(source, use) if is_bound_at(source, use) else _is_read(source, use)):
            raise NotCertainError(f"{name} is used in a way that may need its graph")


def _is_start(source: Source, use: cst.Name) -> bool:
    """Whether the variable is given a number or an empty list there, alone or together with others."""
    around: list[cst.CSTNode] = [use, *source.above(use)]
    for at, above in enumerate(around):
        match above:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple(elements=names))], value=cst.Tuple() as given):
                place = next((n for n, one in enumerate(names) if one is around[at - 3]), None)
                fits = place is not None and len(names) == len(given.elements)
                return fits and is_host_value(source, given.elements[place or 0].value)
            case cst.Assign() | cst.AnnAssign():
                return is_host_value(source, above.value)
            case cst.Name() | cst.AssignTarget() | cst.Tuple() | cst.Element():
                pass
            case _:
                return False
    return False


def _is_read(source: Source, use: cst.CSTNode) -> bool:
    """Whether an expression around the use turns it into numbers or text before anything else gets it."""
    below = use
    for above in source.above(use):
        read = _reads(source, above, below)
        if read is not None:
            return read
        below = above
    return False


def _reads(source: Source, above: cst.CSTNode, below: cst.CSTNode) -> bool | None:
    """Whether an expression gives numbers or text of what it is given; None where what is around it tells."""
    match above:
        case cst.FormattedStringExpression():
            return True
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=method))) if above.func is below:
            return True if method in HOST_METHODS else None if method in _METHODS else False
        case cst.Call(func=cst.Name(value=function)):
            return True if function in _READS else None if function in _PASSES_ON else False
        case cst.Call():
            return None if full_name(source, above.func) in _TORCH else False
        case cst.BinaryOperation() | cst.Arg() | cst.Attribute() | cst.Subscript() | cst.UnaryOperation():
            return None
        case _:
            return False
