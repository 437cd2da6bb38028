"""What names and attributes of a user's source are bound to, and what may change them afterwards.

The question behind it: does an expression have the same value each time a line runs? So only what is certain counts: a
name that is bound once, to something that nothing in the file changes in place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

_CHANGES = frozenset(
    {"append", "appendleft", "extend", "insert", "pop", "popleft", "remove", "clear", "update", "sort", "reverse"}
    | {"fill", "setdefault", "add", "discard", "rotate", "put", "itemset", "resize", "setflags"}
)
"""Methods of lists, dicts, deques and arrays that change them in place; tensors' end with an underscore."""

_STEP_CALLS = frozenset({"backward", "zero_grad", "manual_backward"})
"""A loop whose body calls one of these is the training loop: one pass is one step."""


class Source:
    """A parsed file: parents, scopes, bindings and attribute stores."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self._bound: dict[ast.AST, dict[str, list[ast.AST]]] = {}
        self._names: dict[str, list[ast.Name]] = {}
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self.modules: set[str] = set()
        self.attribute_stores: dict[str, list[ast.Attribute]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                self._names.setdefault(node.id, []).append(node)
            elif isinstance(node, FUNCTIONS):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Import):
                self.modules |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                self.modules |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute) and (isinstance(node.ctx, ast.Store | ast.Del) or self.changed(node)):
                self.attribute_stores.setdefault(node.attr, []).append(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while (up := self.parents.get(node)) is not None:
            yield up
            node = up

    def scope(self, node: ast.AST) -> Scope:
        """The function (or module) whose names a node uses first."""
        return next((up for up in self.above(node) if isinstance(up, Scope)), self.tree)

    def function(self, node: ast.AST) -> str | None:
        """Qualified name of the function around a node; None at module level."""
        path = [up for up in self.above(node) if isinstance(up, (*FUNCTIONS, ast.ClassDef))]
        while path and isinstance(path[0], ast.ClassDef):
            path.pop(0)
        return ".".join(up.name for up in reversed(path)) or None

    def bindings(self, name: str, scope: Scope) -> list[ast.AST]:
        """What binds a name in a scope: statements, parameters, targets of loops and comprehensions."""
        if scope not in self._bound:
            self._bound[scope] = _bindings(scope)
        return self._bound[scope].get(name, [])

    def home(self, name: ast.Name) -> tuple[Scope, list[ast.AST]] | None:
        """The scope that a name belongs to and its bindings there; None where it is a builtin or unknown."""
        scope: Scope | None = self.scope(name)
        while scope is not None:
            found = self.bindings(name.id, scope)
            if found:
                return scope, found
            scope = None if isinstance(scope, ast.Module) else self.scope(scope)
        return None

    def comprehension(self, name: ast.Name) -> ast.comprehension | None:
        """The comprehension clause that binds a name where it is used."""
        for up in self.above(name):
            if isinstance(up, _COMPREHENSIONS):
                for clause in up.generators:
                    if name.id in _targets(clause.target):
                        return clause
            if isinstance(up, Scope):
                break
        return None

    def loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node within its own function."""
        for up in self.above(node):
            if isinstance(up, Scope):
                return None
            if isinstance(up, _LOOPS):
                return up
        return None

    def training_loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node that trains in its body, within the node's own function."""
        loop = self.loop(node)
        while loop is not None and not _trains(loop):
            loop = self.loop(loop)
        return loop

    def inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether a node lies in another."""
        return any(up is outer for up in self.above(node))

    def uses(self, name: str, scope: Scope) -> list[ast.Name]:
        """All uses of the name that mean the binding of this scope."""
        return [use for use in self._names.get(name, []) if (home := self.home(use)) and home[0] is scope]

    def changed(self, node: ast.expr) -> bool:
        """Whether this very use of a name or attribute changes the object in place."""
        up = self.parents.get(node)
        if isinstance(up, ast.AugAssign) and up.target is node:
            return True
        if isinstance(up, ast.Subscript) and up.value is node:
            return isinstance(up.ctx, ast.Store | ast.Del) or self.changed(up)
        if isinstance(up, ast.Attribute) and up.value is node:
            if isinstance(up.ctx, ast.Store):
                return True
            call = self.parents.get(up)
            called = isinstance(call, ast.Call) and call.func is up
            in_place = up.attr in _CHANGES or (up.attr.endswith("_") and not up.attr.endswith("__"))
            return called and in_place
        return False

    def handed_on(self, node: ast.expr) -> ast.Call | None:
        """The call that gets the object itself as an argument."""
        up = self.parents.get(node)
        if isinstance(up, ast.keyword | ast.Starred):
            up = self.parents.get(up)
        return up if isinstance(up, ast.Call) and up.func is not node else None


def _bindings(scope: Scope) -> dict[str, list[ast.AST]]:
    bound: dict[str, list[ast.AST]] = {}
    if not isinstance(scope, ast.Module):
        arguments = scope.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for argument in every:
            if argument is not None:
                bound.setdefault(argument.arg, []).append(argument)
    body = [scope.body] if isinstance(scope, ast.Lambda) else scope.body
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        for name in _bound_by(node):
            bound.setdefault(name, []).append(node)
        if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)):
            todo.extend(ast.iter_child_nodes(node))
    return bound


def _bound_by(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Assign):
        return {name for target in node.targets for name in _targets(target)}
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr):
        return _targets(node.target)
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return _targets(node.optional_vars)
    if isinstance(node, ast.Global | ast.Nonlocal):
        return set(node.names)
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    return set()


def _targets(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _trains(loop: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STEP_CALLS
        for node in ast.walk(loop)
    )
