"""Runs code that needs no gradients under `torch.no_grad()`: an evaluation function, its loop, or one statement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import dotted, full_name, is_imported, spelled
from gpudoctor.engine.edits.patterns import is_simple
from gpudoctor.engine.edits.tree import Function, Loop, Source, is_literal
from gpudoctor.engine.edits.uses import (
    bound_in,
    calls,
    functions,
    host_variables,
    is_bound_at,
    is_host_value,
    trains,
    uses,
)
from gpudoctor.engine.edits.wrap import wrapped

_EVALUATION = re.compile(r"(^|_)(eval|evaluat(e|ion)|val|valid|validat(e|ion)|test|predict|infer|inference)(_|$)")
_CONTEXTS = frozenset(
    {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"}
)


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the code around the line under `torch.no_grad()`; unchanged where it is already."""
    context = spelled(source, "torch.no_grad")
    if context is None:
        raise NotCertainError("the file does not import torch under a name of its own")
    statement = _statement(source, line)
    if _guarded(source, statement):
        return source.module
    if values["scope"] == "statement":
        return _one_statement(source, statement, context)
    function = source.scope(statement)
    if isinstance(function, Function) and function.asynchronous is None and _is_evaluation(source, function):
        return _decorated(source, function, context)
    loop = next((node for node in _up_to_scope(source, statement) if isinstance(node, Loop)), None)
    if loop is None or loop is statement:
        raise NotCertainError("nothing around the line is certain to need no gradients")
    _check_loop(source, loop, function)
    return wrapped(source, loop, loop, f"{context}()")


def _statement(source: Source, line: int) -> cst.BaseStatement:
    """The innermost statement that covers the line."""
    found = [node for node in source.all_nodes() if isinstance(node, cst.BaseStatement) and source.covers(node, line)]
    if not found or any(isinstance(above, cst.Lambda) for above in source.above(found[-1])):
        raise NotCertainError("no statement on the line")
    return found[-1]


def _guarded(source: Source, statement: cst.CSTNode) -> bool:
    for node in (statement, *source.above(statement)):
        if isinstance(node, cst.With) and any(_is_context(source, item.item) for item in node.items):
            return True
        if isinstance(node, Function) and any(_is_context(source, one.decorator) for one in node.decorators):
            return True
    return False


def _is_context(source: Source, expression: cst.BaseExpression) -> bool:
    called = expression.func if isinstance(expression, cst.Call) else expression
    return full_name(source, called) in _CONTEXTS


def _up_to_scope(source: Source, node: cst.CSTNode) -> list[cst.CSTNode]:
    scope = source.scope(node)
    found = []
    for above in source.above(node):
        if above is scope:
            break
        found.append(above)
    return found


def _is_evaluation(source: Source, function: cst.FunctionDef) -> bool:
    """Whether a function wants no gradients, and nothing that it gives away could."""
    if trains(source, function.body) or next(source.nodes(cst.Yield, function), None) is not None:
        return False
    if any(True for _ in source.nodes(Function, function.body)) or any(
        True for _ in source.nodes(cst.Lambda, function.body)
    ):
        return False
    known = host_variables(source, function)
    given = [node.value for node in source.nodes(cst.Return, function)]
    if not all(is_host_value(source, value, known) for value in given) and not _says_so(source, function):
        return False
    return not _keeps_tensors(source, function.body, known)


def _says_so(source: Source, function: cst.FunctionDef) -> bool:
    """Whether a function calls itself an evaluation, and puts what it calls into evaluation mode."""
    owners = set()
    called = set()
    for call, name in calls(source, function.body):
        called.add(dotted(call.func))
        if name == "eval" and isinstance(call.func, cst.Attribute) and not call.args:
            owners.add(dotted(call.func.value))
    return bool(owners & called - {None}) and _EVALUATION.search(function.name.value) is not None


def _keeps_tensors(source: Source, within: cst.CSTNode, known: frozenset[str]) -> bool:
    """Whether something is put into an attribute, an element, a global, or a list of others, that may have a graph."""
    if next(source.nodes(cst.Global, within), None) or next(source.nodes(cst.Nonlocal, within), None):
        return True
    local = bound_in(source, within)
    for node in source.all_nodes(within):
        match node:
            case cst.Assign(targets=places, value=value):
                for place in places:
                    if isinstance(place.target, cst.Attribute | cst.Subscript) and not is_host_value(
                        source, value, known
                    ):
                        return True
            case cst.AugAssign(target=cst.Attribute() | cst.Subscript(), value=value):
                if not is_host_value(source, value, known):
                    return True
            case cst.Call(
                func=cst.Attribute(value=holder, attr=cst.Name(value="append" | "extend" | "add" | "update"))
            ):
                if not (isinstance(holder, cst.Name) and holder.value in local) and not all(
                    is_host_value(source, argument.value, known) for argument in node.args
                ):
                    return True
            case _:
                pass
    return False


def _check_loop(source: Source, loop: cst.For | cst.While, scope: cst.CSTNode) -> None:
    """A loop is certain when it does not train and what it leaves behind has no graph.

    Raises:
        NotCertainError: it is not.
    """
    if trains(source, loop) or next(source.nodes(cst.Yield, loop), None) or next(source.nodes(cst.Return, loop), None):
        raise NotCertainError("the loop trains, or returns from inside")
    known = host_variables(source, scope)
    if _keeps_tensors(source, loop, known):
        raise NotCertainError("the loop keeps what may have a graph")
    around = next((node for node in _up_to_scope(source, loop) if isinstance(node, Loop)), None)
    for name in sorted(bound_in(source, loop) - known):
        places = [use for use in uses(source, name, scope) if not _within(source, use, loop)]
        behind = [use for use in places if source.first_line(use) > source.last_line(loop)]
        before = [use for use in places if around and _within(source, use, around) and use not in behind]
        if not all(_binds_anew(source, part[0], around or scope) for part in (behind, before) if part):
            raise NotCertainError(f"{name} is used behind the loop")


def _within(source: Source, node: cst.CSTNode, holder: cst.CSTNode) -> bool:
    return any(above is holder for above in source.above(node))


def _binds_anew(source: Source, use: cst.Name, holder: cst.CSTNode) -> bool:
    """Whether a use gives the variable a value that does not depend on the old one, whatever happened before."""
    if not is_bound_at(source, use):
        return False
    for above in source.above(use):
        if above is holder:
            return True
        if isinstance(above, cst.If | cst.Try | cst.While | cst.Match | cst.AugAssign | cst.NamedExpr | cst.CompFor):
            return False
        value = above.value if isinstance(above, cst.Assign | cst.AnnAssign) else None
        if value is not None and next(uses(source, use.value, value), None) is not None:
            return False
    return True


def _one_statement(source: Source, statement: cst.BaseStatement, context: str) -> cst.Module:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        raise NotCertainError("no single statement on the line")
    small = statement.body[0]
    if (
        not isinstance(small, cst.Assign | cst.Expr)
        or trains(source, statement)
        or not _is_one_call(source, small.value)
    ):
        raise NotCertainError("the statement does more than call one module and assign")
    return wrapped(source, statement, statement, f"{context}()")


def _is_one_call(source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression calls one thing with plain values, and only takes methods, fields or parts of the result.

    `loss(student, teacher(x))` is none: what is not to be trained and what is would be under one roof.
    """
    while True:
        match value:
            case cst.Subscript(value=inner) | cst.Attribute(value=inner) if not isinstance(inner, cst.Name):
                value = inner
            case cst.Call(func=cst.Attribute(value=inner), args=arguments) if dotted(inner) is None:
                if not all(is_literal(argument.value) for argument in arguments):
                    return False
                value = inner
            case cst.Call(func=function, args=arguments):
                known = isinstance(function, cst.Name) and (
                    is_imported(source, function.value) or functions(source, function.value)
                )
                plain = all(_is_plain(argument.value) for argument in arguments)
                return dotted(function) is not None and full_name(source, function) is None and not known and plain
            case _:
                return False


def _is_plain(value: cst.BaseExpression) -> bool:
    match value:
        case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=name)), args=arguments):
            moves = name in (
                "to",
                "cuda",
                "float",
                "half",
                "detach",
                "clone",
                "contiguous",
                "flatten",
                "view",
                "reshape",
            )
            return moves and _is_plain(inner) and all(_is_plain(argument.value) for argument in arguments)
        case cst.Subscript(value=inner):
            return _is_plain(inner)
        case _:
            return is_simple(value) and not isinstance(value, cst.BinaryOperation)


def _decorated(source: Source, function: cst.FunctionDef, context: str) -> cst.Module:
    decorator = cst.Decorator(cst.ensure_type(cst.parse_expression(f"{context}()"), cst.Call))
    if function.decorators:  # innermost: outer ones (a registry, staticmethod) get the function that they expect
        return source.replace(function, function.with_changes(decorators=[*function.decorators, decorator]))
    return source.replace(function, function.with_changes(decorators=[decorator]))
