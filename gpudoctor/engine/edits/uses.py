"""Where names are read and bound, and what kind of value an expression is: what makes a change certain or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import libcst as cst

from gpudoctor.engine.edits.names import dotted, full_name, is_imported, targets
from gpudoctor.engine.edits.tree import Source, called_name, is_literal

HOST_METHODS = frozenset({"item", "tolist", "numpy", "size", "dim", "numel", "detach", "argmax"})
"""Methods of tensors whose result has no graph: Python and NumPy values, sizes, indices, detached tensors."""

_GRADIENTS = ("torch.autograd.", "torch.func.", "torch.optim.")
_KNOWN = frozenset(
    {"torch", "numpy", "tqdm", "torchvision", "torchmetrics", "sklearn", "einops", *sys.stdlib_module_names}
)
"""Packages whose functions train only where their names say so."""

_TRAINING_WORDS = ("train", "fit", "step", "optimi", "update", "learn", "backward", "grad")
_HOST_FUNCTIONS = frozenset({"float", "int", "len", "bool", "str", "range"})
_COMBINING = frozenset({"max", "min", "sum", "round", "abs", "dict"})
_PLACES = frozenset({"device", "dtype"})
_HOST_MODULES = ("numpy.", "math.", "time.", "statistics.")
_COLLECTING = frozenset({"append", "extend", "add", "update", "insert", "setdefault"})


TRAINING = frozenset(
    {
        "backward",
        "zero_grad",
        "requires_grad_",
        "unscale_",
        "enable_grad",
        "set_grad_enabled",
        "inference_mode",
        "vjp",
        "jvp",
    }
)
"""Methods that say that gradients are wanted here, or that the code decides about them itself."""


def uses(source: Source, name: str, within: cst.CSTNode) -> Iterator[cst.Name]:
    """The places at which a variable of that name is read or bound, in the order of the text."""
    for node in source.nodes(cst.Name, within):
        if node.value == name and not _no_variable(source, node):
            yield node


def is_bound_at(source: Source, node: cst.Name) -> bool:
    """Whether a use of a variable gives it a value."""
    parent = source.parent(node)
    if isinstance(parent, cst.AugAssign):
        return parent.target is node
    around: cst.CSTNode = node
    while isinstance(parent, cst.Element | cst.Tuple | cst.List | cst.StarredElement):
        around, parent = parent, source.parent(parent)
    match parent:
        case cst.AssignTarget() | cst.Param() | cst.AsName() | cst.NameItem():
            return True
        case cst.For(target=target) | cst.CompFor(target=target) | cst.AnnAssign(target=target):
            return target is around
        case cst.NamedExpr(target=target):
            return target is around
        case _:
            return False


def bound_in(source: Source, within: cst.CSTNode) -> set[str]:
    """The names to which something in a node gives a value."""
    return {node.value for node in source.nodes(cst.Name, within) if is_bound_at(source, node)}


def calls(source: Source, within: cst.CSTNode) -> Iterator[tuple[cst.Call, str]]:
    """The calls in a node, with the last part of the called name."""
    for call in source.nodes(cst.Call, within):
        if (name := called_name(call)) is not None:
            yield call, name


def trains(source: Source, within: cst.CSTNode, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a node may want gradients: itself, or in functions that it calls, of this file or not seen here."""
    if any(attribute.attr.value == "grad" for attribute in source.nodes(cst.Attribute, within)):
        return True
    judged = [call for call in source.nodes(cst.Call, within) if not _only_sets_mode(source, call, within)]
    return any(_may_train(source, call, seen) for call in judged)


def _may_train(source: Source, call: cst.Call, seen: frozenset[str]) -> bool:
    name = called_name(call)
    full = full_name(source, call.func)
    if name is None or name in TRAINING or (full or "").startswith(_GRADIENTS):
        return True
    if full is not None and full.partition(".")[0] in _KNOWN:
        return False
    own = functions(source, name)
    if name not in seen and any(trains(source, function.body, seen | {name}) for function in own):
        return True
    if own:
        return False
    if isinstance(call.func, cst.Name) and is_imported(source, name):
        return True  # another file of the user's: who knows
    arguments = call.args and all(is_literal(argument.value) for argument in call.args)
    return any(word in name.lower() for word in _TRAINING_WORDS) and not arguments


def _only_sets_mode(source: Source, call: cst.Call, within: cst.CSTNode) -> bool:
    """Whether a call is the `x.train()` that takes the `x.eval()` of the same code back."""
    if called_name(call) != "train" or not isinstance(call.func, cst.Attribute):
        return False
    owner = dotted(call.func.value)
    others = [other.func for other in source.nodes(cst.Call, within) if called_name(other) == "eval"]
    return owner is not None and any(isinstance(f, cst.Attribute) and dotted(f.value) == owner for f in others)


def functions(source: Source, name: str) -> list[cst.FunctionDef]:
    """The functions and methods of that name in the file."""
    return [function for function in source.nodes(cst.FunctionDef) if function.name.value == name]


def is_host_value(source: Source, value: cst.BaseExpression | None, variables: frozenset[str] = frozenset()) -> bool:
    """Whether an expression certainly holds no tensor with a graph.

    Args:
        source: the file.
        value: the expression; None is no value at all.
        variables: names that are known to hold such values.
    """
    match value:
        case None | cst.Integer() | cst.Float() | cst.Comparison() | cst.SimpleString() | cst.FormattedString():
            return True
        case cst.Name(value=name):
            return name in ("True", "False", "None") or name in variables
        case cst.Attribute(attr=cst.Name(value=name)):
            return name in ("shape", "dtype", "device", "ndim")
        case cst.Call():
            return _is_host_call(source, value, variables)
        case _:
            parts = _parts(value)
            return parts is not None and all(is_host_value(source, part, variables) for part in parts)


def _is_host_call(source: Source, call: cst.Call, variables: frozenset[str]) -> bool:
    full = full_name(source, call.func) or ""
    if full.startswith(_HOST_MODULES):
        return True
    given = [argument for argument in call.args if argument.keyword is None or argument.keyword.value not in _PLACES]
    plain = all(is_host_value(source, argument.value, variables) for argument in given)
    if full.startswith("torch."):
        return plain and not any(argument.keyword and argument.keyword.value == "requires_grad" for argument in given)
    match call.func:
        case cst.Name(value=name):
            return name in _HOST_FUNCTIONS or (name in _COMBINING and plain)
        case cst.Attribute(value=inner, attr=cst.Name(value=name)):
            return name in HOST_METHODS or (plain and is_host_value(source, inner, variables))
        case _:
            return False


def _parts(value: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The expressions that a value is made of; None for one that is not looked into."""
    match value:
        case cst.Tuple(elements=elements) | cst.List(elements=elements) | cst.Dict(elements=elements):
            return [element.value for element in elements]
        case cst.BinaryOperation(left=left, right=right) | cst.ConcatenatedString(left=left, right=right):
            return [left, right]
        case cst.UnaryOperation(expression=inner) | cst.Subscript(value=inner):
            return [inner]
        case cst.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case _:
            return None


def host_variables(source: Source, function: cst.CSTNode) -> frozenset[str]:
    """The local names that only ever hold values without a graph."""
    values: dict[str, list[cst.BaseExpression | None]] = {}
    doubtful: set[str] = set()
    for node in source.all_nodes(function):
        match node:
            case cst.Assign(targets=places, value=value):
                for place in places:
                    _note(place.target, value, values, doubtful)
            case cst.AnnAssign(target=target, value=value) | cst.AugAssign(target=target, value=value):
                _note(target, value, values, doubtful)
            case cst.Call(func=cst.Attribute(value=cst.Name() as target, attr=cst.Name(value=method)), args=arguments):
                for argument in arguments if method in _COLLECTING else ():
                    _note(target, argument.value, values, doubtful)
            case cst.For(target=target) | cst.CompFor(target=target) | cst.NamedExpr(target=target):
                doubtful |= targets(target)
            case cst.Param(name=target) | cst.AsName(name=target):
                doubtful |= targets(target)
            case _:
                pass
    known = frozenset(values) - doubtful
    while True:  # a name counts only while all that it is given counts
        kept = frozenset(name for name in known if all(is_host_value(source, value, known) for value in values[name]))
        if kept == known:
            return known
        known = kept


def _note(
    target: cst.CSTNode,
    value: cst.BaseExpression | None,
    values: dict[str, list[cst.BaseExpression | None]],
    doubtful: set[str],
) -> None:
    """Adds what an assignment gives to which names; `a, b = 0, 1` element by element."""
    if isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
        target = target.value
    if isinstance(target, cst.Name):
        values.setdefault(target.value, []).append(value)
    elif isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple) and len(target.elements) == len(value.elements):
        for element, part in zip(target.elements, value.elements, strict=True):
            _note(element.value, part.value, values, doubtful)
    else:
        doubtful |= targets(target)


def _no_variable(source: Source, node: cst.Name) -> bool:
    parent = source.parent(node)
    match parent:
        case cst.Attribute(attr=attr):
            return attr is node
        case cst.Arg(keyword=keyword):
            return keyword is node
        case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
            return name is node
        case cst.ImportAlias():
            return True
        case _:
            return False
