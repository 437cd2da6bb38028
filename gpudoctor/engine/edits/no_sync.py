"""Accumulates gradients under `no_sync()`: all micro-batches but the last one keep theirs on the rank.

Certain in two forms, for a model that the file wraps in DistributedDataParallel under a name of its own:

    for i in range(k):                       for i, batch in enumerate(loader):
        loss = model(...) ...                    loss = model(...) ...
        loss.backward()                          loss.backward()
    optimizer.step()                             if (i + 1) % k == 0:
                                                     optimizer.step()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import dotted, full_name, spelled, with_import
from gpudoctor.engine.edits.patterns import is_simple
from gpudoctor.engine.edits.tree import Function, Source, called_name
from gpudoctor.engine.edits.uses import bound_in, calls, uses
from gpudoctor.engine.edits.wrap import wrapped

_DDP = "torch.nn.parallel.DistributedDataParallel"
_DDP_NAMES = (_DDP, "torch.nn.parallel.distributed.DistributedDataParallel")


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the micro-batches of the loop around the line under `no_sync()`, all but the last."""
    loop = next((node for node in source.nodes(cst.For) if _is_innermost(source, node, line)), None)
    if loop is None or not isinstance(loop.body, cst.IndentedBlock) or loop.orelse is not None or loop.asynchronous:
        raise NotCertainError("the line does not stand in a plain loop")
    if any(name == "no_sync" for _, name in calls(source, source.module)):
        raise NotCertainError("the file uses no_sync already")
    ends = (cst.Break, cst.Continue, cst.Return, cst.Yield)
    if any(isinstance(node, ends) for node in source.all_nodes(loop.body)):
        raise NotCertainError("the loop has more ends than one")
    if sum(name == "backward" for _, name in calls(source, loop)) != 1:
        raise NotCertainError("the loop has not one backward call")
    model = _model(source, loop)
    null = spelled(source, "contextlib.nullcontext") or "contextlib.nullcontext"
    steps = [call for call, name in calls(source, source.module) if name == "step" and not _of_schedule(call)]
    if len(steps) != 1:
        raise NotCertainError("the file takes optimizer steps in several places")
    inside = any(above is loop for above in source.above(steps[0]))
    if inside:
        module = _every_few(source, loop, steps[0], model, null)
    else:
        module = _in_range(source, loop, steps[0], model, null)
    return module if spelled(source, "contextlib.nullcontext") else with_import(source, module, "contextlib")


def _is_innermost(source: Source, loop: cst.For, line: int) -> bool:
    return source.covers(loop.body, line) and not any(
        source.covers(inner.body, line) for inner in source.nodes(cst.For, loop.body)
    )


def _of_schedule(call: cst.Call) -> bool:
    owner = (dotted(call.func.value) if isinstance(call.func, cst.Attribute) else None) or ""
    return any(word in owner.lower() for word in ("sched", "profiler", "prof", "warmup"))


def _model(source: Source, loop: cst.For) -> str:
    """The name under which the loop calls what the file wraps in DistributedDataParallel."""
    wraps = [call for call in source.nodes(cst.Call) if full_name(source, call.func) in _DDP_NAMES]
    if len(wraps) != 1:
        raise NotCertainError("the file does not wrap one model in DistributedDataParallel")
    assign = source.parent(wraps[0])
    match assign:
        case cst.Assign(targets=[cst.AssignTarget(target=target)]) if (name := dotted(target)) is not None:
            pass
        case _:
            raise NotCertainError("the wrapped model has no name")
    called = {dotted(call.func) for call, _ in calls(source, loop.body)}
    if name not in called:
        raise NotCertainError(f"the loop does not call {name}")
    where, there = source.scope(loop), source.scope(wraps[0])
    if where is there or name.startswith("self."):
        return name
    if isinstance(where, Function) and _is_passed(source, where, name, there):
        return name
    if there is source.module and not any(
        use for use in uses(source, name, where) if isinstance(source.parent(use), cst.Param)
    ):
        return name
    raise NotCertainError("the loop's model may be another one")


def _is_passed(source: Source, function: cst.FunctionDef, name: str, scope: cst.CSTNode) -> bool:
    """Whether each call of a function hands the variable over for its parameter of the same name."""
    parameters = [one.name.value for one in function.params.params]
    if name not in parameters:
        return False
    at = parameters.index(name)
    found = [call for call, called in calls(source, source.module) if called == function.name.value]
    for call in found:
        given = [arg for arg in call.args if arg.keyword is not None and arg.keyword.value == name] or call.args[
            at : at + 1
        ]
        if source.scope(call) is not scope or not given or dotted(given[0].value) != name or given[0].star:
            return False
    return bool(found)


def _in_range(source: Source, loop: cst.For, step: cst.Call, model: str, null: str) -> cst.Module:
    """`for i in range(k)`, and the step behind the loop in its block."""
    match loop.iter, loop.target:
        case cst.Call(func=cst.Name(value="range"), args=[cst.Arg(keyword=None, star="", value=count)]), cst.Name(
            value=index
        ):
            pass
        case _:
            raise NotCertainError("the loop is not of the form `for i in range(k)`")
    block = source.block(loop)
    behind = [one for one in block.body if source.first_line(one) > source.last_line(loop)]
    if not any(step is node for one in behind for node in source.all_nodes(one)):
        raise NotCertainError("the step does not follow the loop")
    if not is_simple(count) or {index, dotted(count)} & bound_in(source, loop.body):
        raise NotCertainError("the number of rounds is computed")
    body = list(loop.body.body)
    last = f"{source.source_of(count)} - 1"
    return wrapped(source, body[0], body[-1], f"{model}.no_sync() if {index} < {last} else {null}()")  # type: ignore[arg-type]


def _every_few(source: Source, loop: cst.For, step: cst.Call, model: str, null: str) -> cst.Module:
    """A condition in the loop's own block decides when to step: the same one decides when to reduce."""
    body = list(loop.body.body)
    at = next((i for i, one in enumerate(body) if any(node is step for node in source.all_nodes(one))), None)
    condition = body[at] if at is not None else None
    if not isinstance(condition, cst.If) or condition.orelse is not None or at == 0 or at is None:
        raise NotCertainError("the step does not hang on one condition")
    if any(node is step for node in source.all_nodes(condition.test)) or not _is_of_counter(
        source, loop, condition.test
    ):
        raise NotCertainError("the condition is not one of the loop's counter alone")
    before = body[:at]
    first = next((one for one in before if model in {dotted(call.func) for call, _ in calls(source, one)}), None)
    last = next((one for one in before if any(name == "backward" for _, name in calls(source, one))), None)
    if first is None or last is None:
        raise NotCertainError("forward and backward do not stand before the step")
    test = source.source_of(condition.test.with_changes(lpar=[], rpar=[]))
    if "\n" in test or "#" in test:
        raise NotCertainError("the condition goes over several lines")
    return wrapped(source, first, last, f"{null}() if {test} else {model}.no_sync()")  # type: ignore[arg-type]


def _is_of_counter(source: Source, loop: cst.For, test: cst.BaseExpression) -> bool:
    """Whether a condition is arithmetic on the counter of the loop and on what the loop does not change."""
    match loop.iter, loop.target:
        case cst.Call(func=cst.Name(value="enumerate")), cst.Tuple(
            elements=[cst.Element(value=cst.Name(value=index)), *_]
        ):
            pass
        case cst.Call(func=cst.Name(value="range")), cst.Name(value=index):
            pass
        case _:
            return False
    allowed = (cst.Name, cst.Attribute, cst.Integer, cst.BinaryOperation, cst.Comparison, cst.BooleanOperation)
    for node in source.all_nodes(test):
        if isinstance(node, cst.Call):
            if called_name(node) != "len":
                return False
        elif isinstance(node, cst.BaseExpression) and not isinstance(node, allowed):
            return False
    names = {name.value for name in source.nodes(cst.Name, test)}
    return index in names and not names & bound_in(source, loop.body)
