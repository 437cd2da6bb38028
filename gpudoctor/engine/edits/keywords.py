"""Sets and drops keyword arguments of one call, in the style the call is written in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.tree import Source, called_name, is_literal


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the arguments of the one call of that name that covers the line changed."""
    call = covering(source, values["call"], line)
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if ruled_out := keywords & set(values["unless"]):
        raise NotCertainError(f"the call has {sorted(ruled_out)[0]}")
    if missing := set(values["only_with"]) - keywords:
        raise NotCertainError(f"the call has no {sorted(missing)[0]}")
    if sum(arg.keyword is None for arg in call.args) > values["max_positional"]:
        raise NotCertainError("the call may pass the argument by position")
    for other in source.nodes(cst.Call) if values["unless_called"] else ():
        if called_name(other) in values["unless_called"]:
            raise NotCertainError(f"the file calls {called_name(other)}")
    present = [name for name in values["drop"] if name in keywords]
    if values["set"]:  # what is dropped would contradict what is set: fine when it is not there
        return replaced(source, call, set_keywords(drop_keywords(call, present), values["set"]))
    return replaced(source, call, drop_keywords(call, values["drop"]))


def covering(source: Source, name: str, line: int) -> cst.Call:
    """The one call of a function or method of that name (or of one of several) that covers the line."""
    names = name.split("|")
    found = [call for call in source.nodes(cst.Call) if called_name(call) in names and source.covers(call, line)]
    if len(found) != 1:
        raise NotCertainError(f"{len(found) or 'no'} calls of {name} on the line")
    return found[0]


def replaced(source: Source, call: cst.Call, new: cst.Call) -> cst.Module:
    """The module with a call's function and arguments replaced."""
    fields = {"func": new.func, "args": new.args, "whitespace_before_args": new.whitespace_before_args}
    module = source.module.with_deep_changes(call, **fields)
    assert isinstance(module, cst.Module)
    return module


def set_keywords(call: cst.Call, put: Mapping[str, str]) -> cst.Call:
    """The call with keyword arguments set to source text; a literal is replaced, a missing one appended.

    Raises:
        NotCertainError: the call has `*args` or `**kwargs`, or computes an argument's value.
    """
    for name, source in put.items():
        if any(arg.star for arg in call.args):
            raise NotCertainError("the call passes on arguments that are not written in it")
        value = cst.parse_expression(source)
        old = next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name), None)
        if old is None:
            call = _append(call, name, value)
        elif is_literal(old.value):
            args = [arg.with_changes(value=value) if arg is old else arg for arg in call.args]
            call = call.with_changes(args=args)
        else:
            raise NotCertainError(f"the call computes {name}")
    return call


def drop_keywords(call: cst.Call, names: Collection[str]) -> cst.Call:
    """The call without keyword arguments.

    Raises:
        NotCertainError: an argument is not there by name, or a comment would be lost with it.
    """
    for name in names:
        at = next((i for i, arg in enumerate(call.args) if arg.keyword is not None and arg.keyword.value == name), None)
        if at is None:
            raise NotCertainError(f"the call has no argument {name}")
        gone = call.args[at]
        if "#" in cst.Module(body=[]).code_for_node(gone.with_changes(value=cst.Name("x"))):
            raise NotCertainError("the argument carries a comment")
        args = list(call.args)
        del args[at]
        if at == len(args) and args:
            args[-1] = args[-1].with_changes(comma=gone.comma, whitespace_after_arg=gone.whitespace_after_arg)
        call = call.with_changes(args=args)
        if not args:
            call = call.with_changes(whitespace_before_args=cst.SimpleWhitespace(""))
    return call


def _append(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """The call with one more keyword argument, on a line of its own where the others are."""
    new = cst.Arg(
        value=value,
        keyword=cst.Name(name),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[new])
    last = call.args[-1]
    between = _between(call)
    if isinstance(last.comma, cst.Comma):  # a trailing comma: keep it, after the new one
        tail = last.comma.whitespace_after
        old = last.with_changes(comma=last.comma.with_changes(whitespace_after=_comment_of(tail, between)))
        new = new.with_changes(comma=cst.Comma(whitespace_after=_bare(tail)))
    else:
        tail = last.whitespace_after_arg
        comma = cst.Comma(whitespace_after=_comment_of(tail, between))
        old = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
        new = new.with_changes(whitespace_after_arg=_bare(tail))
    return call.with_changes(args=[*call.args[:-1], old, new])


def _between(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """What stands between two arguments of the call, without comments."""
    if len(call.args) > 1 and isinstance(comma := call.args[-2].comma, cst.Comma):
        return _bare(comma.whitespace_after)
    if isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        return _bare(call.whitespace_before_args)
    return cst.SimpleWhitespace(" ")


def _bare(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """The white space without comments and empty lines."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        return space.with_changes(first_line=first, empty_lines=[])
    return space


def _comment_of(
    tail: cst.BaseParenthesizableWhitespace, between: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """`between`, carrying the comments that stood behind the argument that was last so far."""
    if not isinstance(tail, cst.ParenthesizedWhitespace) or "#" not in cst.Module(body=[]).code_for_node(tail):
        return between
    if isinstance(between, cst.ParenthesizedWhitespace):
        return between.with_changes(first_line=tail.first_line, empty_lines=tail.empty_lines)
    return tail
