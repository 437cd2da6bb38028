"""Makes a tensor where it is needed: `torch.arange(n).to(x.device)` as `torch.arange(n, device=x.device)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.keywords import set_keywords
from gpudoctor.engine.edits.names import full_name
from gpudoctor.engine.edits.patterns import is_device, is_simple
from gpudoctor.engine.edits.tree import Source, called_name, is_literal

_FACTORIES = frozenset(
    f"torch.{name}" for name in ("arange", "zeros", "ones", "full", "eye", "tril_indices", "triu_indices")
)
"""Functions whose values are the same to the last bit on each device; random and computed ones are not."""

_FUNCTIONS = frozenset({"torch.tril", "torch.triu", "torch.flip", "torch.unsqueeze", "torch.logical_not"})
_METHODS = frozenset(
    {"tril", "triu", "flip", "unsqueeze", "squeeze", "view", "reshape", "expand", "repeat", "transpose", "permute", "t"}
    | {"bool", "long", "int", "float", "contiguous", "clone", "flatten", "logical_not"}
)


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the one tensor that the line makes and moves made on the device that it is moved to."""
    made = [
        (call, call.func.value, device)
        for call in source.nodes(cst.Call)
        if source.covers(call, line) and (device := _target(call)) is not None and isinstance(call.func, cst.Attribute)
    ]
    if len(made) != 1:
        raise NotCertainError(f"{len(made) or 'no'} moves to a device on the line")
    call, tensor, device = made[0]
    new = _on(source, tensor, source.source_of(device))
    return source.replace(call, new.with_changes(lpar=[*call.lpar, *new.lpar], rpar=[*new.rpar, *call.rpar]))


def _target(call: cst.Call) -> cst.BaseExpression | None:
    """The device that `.to(device)` or `.cuda()` names; None for another call."""
    name = called_name(call)
    if name == "cuda" and not call.args:
        return cst.SimpleString('"cuda"')
    if name != "to" or any(argument.star for argument in call.args):
        return None
    others = [arg for arg in call.args if arg.keyword is not None and arg.keyword.value == "non_blocking"]
    rest = [arg for arg in call.args if arg not in others]
    if len(rest) != 1 or (rest[0].keyword is not None and rest[0].keyword.value != "device"):
        return None
    return rest[0].value if is_device(rest[0].value) else None


def _on(source: Source, value: cst.BaseExpression, device: str) -> cst.BaseExpression:
    """The expression with all tensors in it made on a device.

    Raises:
        NotCertainError: it is made of something else as well.
    """
    match value:
        case cst.Call() if full_name(source, value.func) in _FACTORIES:
            if any(argument.keyword is not None and argument.keyword.value == "device" for argument in value.args):
                raise NotCertainError("the tensor is made on a device already")
            return set_keywords(value, {"device": device})
        case cst.Call(func=function, args=[first, *others]) if full_name(source, function) in _FUNCTIONS:
            if first.keyword is not None or not _plain(others):
                raise NotCertainError("the tensor is computed from others")
            new = first.with_changes(value=_on(source, first.value, device))
            return value.with_changes(args=[new, *others])
        case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=name)) as function, args=arguments):
            if name not in _METHODS or not _plain(arguments):
                raise NotCertainError("the tensor is computed from others")
            return value.with_changes(func=function.with_changes(value=_on(source, inner, device)))
        case (
            cst.BinaryOperation(left=left, right=other)
            | cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(comparator=other)])
        ) if is_literal(other):
            return value.with_changes(left=_on(source, left, device))
        case cst.Subscript(value=inner, slice=parts) if _adds_axes(source, parts):
            return value.with_changes(value=_on(source, inner, device))
        case cst.UnaryOperation(expression=inner):
            return value.with_changes(expression=_on(source, inner, device))
        case _:
            raise NotCertainError("no tensor that is the same on each device")


def _plain(arguments: Any) -> bool:
    """Whether arguments are numbers and names of them."""
    return all(not argument.star and (_is_size(argument.value) or is_simple(argument.value)) for argument in arguments)


def _is_size(value: cst.BaseExpression) -> bool:
    match value:
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="size")), args=[cst.Arg(value=at)]):
            return is_literal(at)
        case cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
            return True
        case _:
            return is_literal(value)


def _adds_axes(source: Source, parts: Any) -> bool:
    """Whether a subscript has nothing but `None`, `:`, `...` and numbers in it."""
    return all(re.fullmatch(r"(None|\.\.\.|[-:\d ]*),? ?", source.source_of(part)) for part in parts)
