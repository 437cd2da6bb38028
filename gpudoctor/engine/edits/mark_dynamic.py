"""Says before a compiled call which dimension of a tensor varies: `torch._dynamo.maybe_mark_dynamic(x, 1)`.

`maybe_mark_dynamic`, because `mark_dynamic` stops the script where an operator wants one size after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.insert import beside
from gpudoctor.engine.edits.names import dotted, full_name, spelled
from gpudoctor.engine.edits.tree import Source, called_name
from gpudoctor.engine.edits.uses import functions

_MARK = "torch._dynamo.maybe_mark_dynamic"


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with a mark before the statement that calls the compiled function with a tensor of that name."""
    mark = spelled(source, _MARK)
    if mark is None or not str(values["dimension"]).isdigit():
        raise NotCertainError("the file does not import torch, or the dimension is unknown")
    found = [
        argument
        for call in source.nodes(cst.Call)
        if source.covers(call, line)
        and (argument := _passed(source, call, str(values["function"]), str(values["tensor"])))
    ]
    if len(found) != 1:
        raise NotCertainError(f"{len(found) or 'no'} compiled calls on the line that take the tensor")
    return beside(source, line, source.new_statement(f"{mark}({found[0]}, {values['dimension']})"), after=False)


def _passed(source: Source, call: cst.Call, function: str, parameter: str) -> str | None:
    """The plain name that a call of something compiled passes for a parameter of its function."""
    if not _is_compiled(source, call, function) or any(argument.star for argument in call.args):
        return None
    own = functions(source, function)
    if len(own) != 1:
        return None
    names = [one.name.value for one in own[0].params.params]
    names = names[1:] if names[:1] == ["self"] else names
    for index, argument in enumerate(call.args):
        name = argument.keyword.value if argument.keyword is not None else names[index] if index < len(names) else None
        if name == parameter and isinstance(argument.value, cst.Name):
            return argument.value.value
    return None


def _is_compiled(source: Source, call: cst.Call, function: str) -> bool:
    """Whether what is called was given its name by `torch.compile(...)`, or is a function with that decorator."""
    name = dotted(call.func)
    if name is None:
        return False
    for node in source.all_nodes():
        match node:
            case cst.Assign(targets=[cst.AssignTarget(target=target)], value=cst.Call() as made) if (
                dotted(target) == name
            ):
                if full_name(source, made.func) == "torch.compile":
                    return True
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="compile"))) if dotted(owner) == name:
                return True
    own = functions(source, function) if called_name(call) == function else []
    return any(
        full_name(source, one.decorator.func if isinstance(one.decorator, cst.Call) else one.decorator)
        == "torch.compile"
        for each in own
        for one in each.decorators
    )
