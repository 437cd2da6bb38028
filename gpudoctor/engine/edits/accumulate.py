"""Keeps a running total on the device: `total += loss.item()` in a training loop, read once behind the loop.

Certain only where the total starts at a zero that is written before the loop, and nothing in the loop looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import dotted
from gpudoctor.engine.edits.patterns import number
from gpudoctor.engine.edits.tree import Function, Loop, Source, called_name
from gpudoctor.engine.edits.uses import calls, functions, is_bound_at, is_host_value, uses

_TRAINING = frozenset({"backward", "step"})


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the sum on the line made of tensors, and the total turned into a number behind the loop."""
    statement, total = _sum(source, line)
    read = _read(source, total.value)
    loop = _loop(source, statement)
    block = source.block(loop)
    name = total.target
    assert isinstance(name, cst.Name)
    zero = _start(source, block, loop, name.value)
    counts = is_host_value(source, _inner(read))
    if isinstance(zero, cst.Integer) and not counts:
        raise NotCertainError("it is not certain whether the total is a whole number")
    behind = _check_uses(source, loop, total, name.value)
    kept = _inner(read) if counts else cst.parse_expression(f"{source.source_of(_inner(read))}.detach().float()")
    new = loop.deep_replace(read, kept.with_changes(lpar=kept.lpar or read.lpar, rpar=kept.rpar or read.rpar))
    kind = "int" if isinstance(zero, cst.Integer) else "float"
    after = [source.new_statement(f"{name.value} = {kind}({name.value})")] if behind else []
    body = list(block.body)
    at = next(i for i, one in enumerate(body) if one is loop)
    return source.with_statements(block, [*body[:at], new, *after, *body[at + 1 :]])  # type: ignore[list-item]


def _sum(source: Source, line: int) -> tuple[cst.SimpleStatementLine, cst.AugAssign]:
    found = [node for node in source.nodes(cst.SimpleStatementLine) if source.covers(node, line)]
    match found:
        case [cst.SimpleStatementLine(body=[cst.AugAssign(target=cst.Name(), operator=cst.AddAssign()) as total])]:
            return found[0], total
        case _:
            raise NotCertainError("no sum in a plain variable on the line")


def _read(source: Source, value: cst.BaseExpression) -> cst.Call:
    """The one `.item()` in what is added, alone or times a number."""
    match value:
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="item")), args=[]):
            return value
        case cst.Call(func=cst.Name(value="float"), args=[cst.Arg(keyword=None, star="", value=inner)]) if dotted(
            inner
        ):
            return value
        case cst.BinaryOperation(operator=cst.Multiply() | cst.Divide(), left=cst.Call() as left, right=right):
            if called_name(left) in ("item", "float") and is_host_value(source, right):
                return _read(source, left)
    raise NotCertainError("what is added is not one value that is read")


def _inner(read: cst.Call) -> cst.BaseExpression:
    """What is read, without the copies and detachings that were made for it."""
    value = read.func.value if isinstance(read.func, cst.Attribute) else read.args[0].value
    while isinstance(value, cst.Call) and called_name(value) in ("cpu", "detach") and not value.args:
        if not isinstance(value.func, cst.Attribute):
            break
        value = value.func.value
    return value


def _loop(source: Source, statement: cst.SimpleStatementLine) -> cst.For | cst.While:
    """The training loop that the statement stands in, as often as the loop goes round."""
    for above in source.above(statement):
        if isinstance(above, Loop):
            if (
                above.orelse is not None
                or next(source.nodes(cst.Yield, above), None)
                or next(source.nodes(cst.Return, above), None)
            ):
                raise NotCertainError("the loop has more ends than one")
            if not _trains(source, above):
                raise NotCertainError("the loop takes no optimizer step")
            return above
        if not isinstance(above, cst.IndentedBlock | cst.With):
            break
    raise NotCertainError("the sum does not stand in a loop of its own")


def _trains(source: Source, loop: cst.CSTNode) -> bool:
    names = {name for _, name in calls(source, loop)}
    own = [function for name in names for function in functions(source, name)]
    return bool(names & _TRAINING) or any({name for _, name in calls(source, one.body)} & _TRAINING for one in own)


def _start(source: Source, block: cst.IndentedBlock | cst.Module, loop: cst.CSTNode, name: str) -> cst.BaseExpression:
    """The zero that the total starts with, in the same block as the loop."""
    found: cst.BaseExpression | None = None
    for statement in block.body:
        if statement is loop:
            break
        for use in uses(source, name, statement):
            found = _given(statement, name) if is_bound_at(source, use) else None
    if found is None or number(found) != 0:
        raise NotCertainError("the total does not start at a zero before the loop")
    return found


def _given(statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    match statement:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=places, value=value)]):
            for place in places:
                match place.target, value:
                    case cst.Name(value=found), _ if found == name:
                        return value
                    case cst.Tuple(elements=names), cst.Tuple(elements=parts) if len(names) == len(parts):
                        for one, part in zip(names, parts, strict=True):
                            if isinstance(one.value, cst.Name) and one.value.value == name:
                                return part.value
    return None


def _check_uses(source: Source, loop: cst.CSTNode, total: cst.AugAssign, name: str) -> bool:
    """Whether something behind the loop uses the total.

    Raises:
        NotCertainError: the loop itself does, or another function.
    """
    scope = source.scope(loop)
    inside = [use for use in uses(source, name, loop) if use is not total.target]
    places = list(uses(source, name, scope))
    shared = any(source.scope(use) is not scope for use in places)
    declared = any(isinstance(source.parent(use), cst.NameItem) for use in places)
    if inside or shared or declared or not isinstance(scope, Function | cst.Module):
        raise NotCertainError("the total is used in the loop, or by another function")
    if isinstance(scope, cst.Module) and any(
        True for function in source.nodes(Function) for _ in uses(source, name, function)
    ):
        raise NotCertainError("a function may use the total")
    return any(source.first_line(use) > source.last_line(loop) for use in places)
