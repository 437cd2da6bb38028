"""Small questions about expressions that several kinds of edits ask."""

from __future__ import annotations

import re

import libcst as cst

from gpudoctor.engine.edits.names import dotted, full_name
from gpudoctor.engine.edits.tree import Source, is_literal


def keywords(call: cst.Call, names: tuple[str, ...]) -> dict[str, cst.BaseExpression] | None:
    """The arguments of a call by name, those without one named in order; None when that cannot be told."""
    found: dict[str, cst.BaseExpression] = {}
    for index, argument in enumerate(call.args):
        if argument.star:
            return None
        name = argument.keyword.value if argument.keyword is not None else names[index] if index < len(names) else None
        if name is None or name in found:
            return None
        found[name] = argument.value
    return found


def number(value: cst.BaseExpression | None) -> float | None:
    """The value of a number as written, with its sign."""
    if isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus):
        inner = number(value.expression)
        return None if inner is None else -inner
    return float(value.evaluated_value) if isinstance(value, cst.Integer | cst.Float) else None


def is_minus_infinity(source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression is `float("-inf")`, `-math.inf`, `-torch.inf` or `-float("inf")`."""
    if isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus):
        inner = value.expression
        return full_name(source, inner) in ("math.inf", "torch.inf", "numpy.inf") or _float_of(inner) == "inf"
    return _float_of(value) == "-inf"


def _float_of(value: cst.BaseExpression) -> str | None:
    match value:
        case cst.Call(func=cst.Name(value="float"), args=[cst.Arg(value=cst.SimpleString() as text)]):
            return str(text.evaluated_value).strip().lower().removesuffix("inity")
        case _:
            return None


def is_device(value: cst.BaseExpression) -> bool:
    """Whether an expression certainly names a device: `x.device`, a variable called so, or `"cuda:0"`."""
    match value:
        case cst.SimpleString():
            return re.fullmatch(r"(cuda|cpu|mps|xpu|hpu)(:\d+)?", str(value.evaluated_value)) is not None
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)):
            return dotted(value) is not None and re.fullmatch(r"_?(\w+_)?(device|dev)", name) is not None
        case _:
            return False


def is_simple(value: cst.BaseExpression) -> bool:
    """Whether evaluating an expression twice, or later, gives the same: names, attributes, literals, arithmetic."""
    if dotted(value) is not None or is_literal(value):
        return True
    if isinstance(value, cst.BinaryOperation):
        return is_simple(value.left) and is_simple(value.right)
    return False


def bare(value: cst.BaseExpression) -> cst.BaseExpression:
    """An expression without the parentheses around it."""
    return value.with_changes(lpar=[], rpar=[])
