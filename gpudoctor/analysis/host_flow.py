"""Which tensors the user's source takes to the host and sends back to the device: what flows from `.cpu()` to `.to(…)`.

Within a function, names are followed from statement to statement. What is computed from a value that came to the host
is derived from it, except its sizes; what a function of the user's returns is when its `return` uses the argument.
Containers count by what is stored under the very index that is read or when all of their elements do, lists by what is
appended.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Span = tuple[int, int]
Origins = frozenset[Span]
_Function = ast.FunctionDef | ast.AsyncFunctionDef

_OUT = frozenset({"cpu", "numpy", "tolist"})
"""Methods whose result lives on the host."""
_BACK = frozenset({"to", "cuda"})
_SIZES = frozenset({"shape", "size", "dim", "ndim", "numel", "dtype", "device", "is_cuda", "stride", "element_size"})
"""Attributes and methods that say nothing of the values."""
_NO_VALUE = frozenset({"len", "isinstance", "type", "print", "range", "id", "hasattr"})
_KEEPS = frozenset({"append", "extend", "add", "insert", "appendleft"})
_NOTHING: Origins = frozenset()
_ARGUMENT: Origins = frozenset({(0, 0)})
_MAX_DEPTH = 3  # functions that call functions: values are followed no deeper


@dataclass(frozen=True, slots=True)
class Flow:
    """A value that goes to the host and comes back in one function.

    Attributes:
        file: the user's file.
        function: its function; None at module level.
        out: first and last line of the call that brings it to the host.
        back: first and last line of the call that brings what became of it to the device.
    """

    file: str
    function: str | None
    out: Span
    back: Span


def flows(sources: Mapping[str, str]) -> list[Flow]:
    """All such values of the user's files."""
    trees = {file: tree for file, text in sorted(sources.items()) if (tree := _parsed(text)) is not None}
    known = {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, _Function)}
    made: dict[Flow, None] = {}
    for file, tree in trees.items():
        bodies: list[tuple[str | None, list[ast.stmt]]] = [(None, tree.body)]
        bodies += [(node.name, node.body) for node in ast.walk(tree) if isinstance(node, _Function)]
        for function, body in bodies:
            walk = _Walk(known)
            walk.block(body)
            made |= dict.fromkeys(Flow(file, function, out, back) for out, back in walk.pairs if out != (0, 0))
    return list(made)


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Walk:
    """Follows the values of one function.

    Attributes:
        pairs: calls that bring a value out, and calls that bring it back.
        returned: where returned values came from.
    """

    def __init__(self, known: Mapping[str, _Function], depth: int = 0) -> None:
        self._known, self._depth = known, depth
        self.held: dict[str, Origins] = {}
        self.pairs: dict[tuple[Span, Span], None] = {}
        self.returned: Origins = _NOTHING

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Statements in their order."""
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (*_Function.__args__, ast.ClassDef)):
            return
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._store(node.target, self.origins(node.value) | self.origins(node.target))
        elif isinstance(node, ast.Return):
            self.returned |= self.origins(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor):
            for _ in range(2):  # what one pass leaves behind, the next one finds
                self._store(node.target, self.origins(node.iter))
                self.block(node.body)
            self.block(node.orelse)
        elif isinstance(node, ast.While):
            for _ in range(2):
                self.origins(node.test)
                self.block(node.body)
            self.block(node.orelse)
        elif isinstance(node, ast.Expr):
            self._expression(node.value)
        else:
            self._others(node)

    def _others(self, node: ast.stmt) -> None:
        """Statements around statements (`if`, `with`, `try`), and those that only compute."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, ast.expr):
                self.origins(child)
            elif isinstance(child, ast.withitem):
                self.origins(child.context_expr)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                self.block(child.body)

    def _expression(self, node: ast.expr) -> None:
        made = self.origins(node)
        if made and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS:
            key = ast.unparse(node.func.value)
            self.held[key] = self.held.get(key, _NOTHING) | made

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case (
                (ast.Tuple(elts=names) | ast.List(elts=names)),
                (ast.Tuple(elts=values) | ast.List(elts=values)),
            ) if len(names) == len(values):
                made = [self.origins(one) for one in values]
                for name, origins in zip(names, made, strict=True):
                    self._store(name, origins)
            case _:
                self._store(target, self.origins(value))

    def _store(self, target: ast.expr, origins: Origins) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._store(one, origins)
        elif isinstance(target, ast.Starred):
            self._store(target.value, origins)
        elif origins:
            self.held[ast.unparse(target)] = origins
        else:
            self.held.pop(ast.unparse(target), None)

    def origins(self, node: ast.AST | None) -> Origins:
        """Calls that brought to the host what an expression's value is made of."""
        match node:
            case None | ast.Constant() | ast.Lambda():
                made = _NOTHING
            case ast.Name():
                made = self.held.get(node.id, _NOTHING)
            case ast.Attribute():
                inner = _NOTHING if node.attr in _SIZES else self.origins(node.value)
                made = self.held.get(ast.unparse(node), inner)
            case ast.Subscript():
                made = self.held.get(ast.unparse(node)) or self.origins(node.value)
            case ast.Call():
                made = self._call(node)
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():  # other elements are not made of it
                parts = [self.origins(one) for one in (node.values if isinstance(node, ast.Dict) else node.elts)]
                made = _NOTHING.union(*parts) if all(parts) else _NOTHING
            case _:
                made = self._of(ast.iter_child_nodes(node))
        return made

    def _of(self, nodes: Iterable[ast.AST]) -> Origins:
        made = _NOTHING
        for node in nodes:
            made |= self.origins(node)
        return made

    def _call(self, node: ast.Call) -> Origins:
        name = _called(node)
        given = self._of([*_receiver(node), *node.args, *(keyword.value for keyword in node.keywords)])
        span = node.lineno, node.end_lineno or node.lineno
        if name in _SIZES or name in _NO_VALUE:
            return _NOTHING
        if name in _OUT or (name == "to" and _names_host(node)):
            return given or frozenset({span})  # `.cpu().numpy()` copies once
        if name in _BACK or any(keyword.arg == "device" for keyword in node.keywords):
            if given and not _is_conversion(node):
                self.pairs |= dict.fromkeys((out, span) for out in given)
                return _NOTHING
            return given
        own = self._known.get(name or "")
        return _NOTHING if own is not None and given and not self._returns(own) else given

    def _returns(self, function: _Function) -> bool:
        """Whether what a function returns is made of its arguments."""
        if self._depth >= _MAX_DEPTH:
            return False
        walk = _Walk(self._known, self._depth + 1)
        arguments = function.args
        walk.held = {one.arg: _ARGUMENT for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        walk.held.pop("self", None)
        walk.block(function.body)
        return bool(walk.returned & _ARGUMENT)


def _called(node: ast.Call) -> str | None:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def _receiver(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Attribute):
        yield node.func.value


def _target(node: ast.Call) -> ast.expr | None:
    named = (keyword.value for keyword in node.keywords if keyword.arg == "device")
    return next(named, node.args[0] if node.args else None)


def _names_host(node: ast.Call) -> bool:
    """Whether `.to(…)` names the CPU."""
    target = _target(node)
    if isinstance(target, ast.Call) and _called(target) == "device" and target.args:
        target = target.args[0]
    return isinstance(target, ast.Constant) and target.value == "cpu"


def _is_conversion(node: ast.Call) -> bool:
    """Whether `.to(…)` names a dtype and no device, or the CPU."""
    target = _target(node)
    if _called(node) == "to" and target is None:
        return True
    spelled = ast.unparse(target) if isinstance(target, ast.Attribute) else ""
    return _names_host(node) or spelled.startswith("torch.") or spelled.endswith(".dtype")
