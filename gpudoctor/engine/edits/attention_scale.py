"""The scale of attention: whether it is a number of Python's, as `scale=` wants, and whether it is the default."""

from __future__ import annotations

import re

import libcst as cst

from gpudoctor.engine.edits.names import dotted, full_name
from gpudoctor.engine.edits.patterns import number
from gpudoctor.engine.edits.tree import Source

_ARITHMETIC = cst.Power | cst.Divide | cst.Multiply | cst.FloorDivide


def is_python_number(source: Source, at: cst.CSTNode, value: cst.BaseExpression) -> bool:
    """Whether a value is certainly no tensor.

    Args:
        source: the file.
        at: a statement of the function in which the value is used.
        value: the expression. A variable or attribute counts when all that is assigned to it does.
    """
    if dotted(value) is None:
        return _is_computed(source, at, value)
    made = _made(source, at, value)
    return bool(made) and all(_is_computed(source, at, one) for one in made)


def root_of_size(source: Source, value: cst.BaseExpression, power: float) -> str | None:
    """The name of the tensor whose last dimension's root (power 0.5) or inverse root (-0.5) a scale is."""
    match value:
        case cst.Call(args=[argument]) if power > 0 and full_name(source, value.func) == "math.sqrt":
            return _of_last_size(argument.value)
        case cst.BinaryOperation(operator=cst.Power(), left=left, right=right) if number(right) == power:
            return _of_last_size(left)
        case _:
            return None


def assigned(source: Source, holder: cst.CSTNode, name: str) -> list[cst.BaseExpression]:
    """All that is assigned to a dotted name in a class or function."""
    found = []
    for node in source.all_nodes(holder):
        match node:
            case cst.Assign(targets=places, value=value):
                found += [value for place in places if dotted(place.target) == name]
            case cst.AnnAssign(target=target, value=value) if value is not None and dotted(target) == name:
                found.append(value)
            case cst.AugAssign(target=target) if dotted(target) == name:
                found.append(cst.Name("changed"))
            case cst.Param(name=parameter) if parameter.value == name:
                found.append(cst.Name("passed"))
            case _:
                pass
    return found


def _is_computed(source: Source, at: cst.CSTNode, value: cst.BaseExpression) -> bool:
    """Whether an expression is a number as written, a root, a size, or arithmetic on them and on dimensions."""
    match value:
        case cst.Integer() | cst.Float() | cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
            return True
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="size"))):
            return True
        case cst.Call():
            return full_name(source, value.func) == "math.sqrt"
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            return _is_computed(source, at, inner)
        case cst.BinaryOperation(operator=operator, left=left, right=right) if isinstance(operator, _ARITHMETIC):
            return all(_is_computed(source, at, part) or _is_dimension(source, at, part) for part in (left, right))
        case _:
            return False


def _is_dimension(source: Source, at: cst.CSTNode, value: cst.BaseExpression) -> bool:
    """Whether a plain name in a root or quotient is a dimension: nothing says that it could be a tensor."""
    name = dotted(value)
    if name is None:
        return False
    texts = [source.source_of(one) for one in _made(source, at, value)]
    if any(re.search(r"\b(torch|nn|Parameter|np|numpy)\b", text) for text in texts):
        return False
    registered = name.rpartition(".")[2]
    return not any(str(text.evaluated_value) == registered for text in source.nodes(cst.SimpleString))


def _made(source: Source, at: cst.CSTNode, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What the class (of `self.x`) or the function assigns to a name."""
    name = dotted(value) or ""
    kind = cst.ClassDef if name.startswith("self.") else cst.FunctionDef
    holder = next((above for above in source.above(at) if isinstance(above, kind)), None)
    return assigned(source, holder, name) if holder is not None else []


def _of_last_size(value: cst.BaseExpression) -> str | None:
    match value:
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="size")), args=[at]):
            return dotted(owner) if number(at.value) == -1 else None
        case cst.Subscript(value=cst.Attribute(value=owner, attr=cst.Name(value="shape")), slice=[part]):
            last = isinstance(part.slice, cst.Index) and number(part.slice.value) == -1
            return dotted(owner) if last else None
        case _:
            return None
