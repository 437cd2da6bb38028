"""Where the user's source adds to something that grows, and whether it takes out of it again."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.analysis.bindings import Source

_ADDS = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "add_"})
_TAKES_OUT = frozenset({"pop", "popleft", "popitem", "remove", "discard", "move_to_end"})
_FIRST = frozenset({"__init__", "__new__", "__post_init__", "__setstate__"})


@dataclass(frozen=True, slots=True)
class Site:
    """What the source says about a holder.

    Attributes:
        file: file of the statement that adds to it.
        line: its line.
        function: its function.
        others: lines of other statements that do.
        bounded: something is taken out of it as well.
        emptied: it is emptied or made anew now and then.
    """

    file: str
    line: int
    function: str | None
    others: tuple[int, ...]
    bounded: bool
    emptied: bool


class GrowthSites:
    """Looks holders up in the sources; a file that does not parse tells nothing.

    Args:
        sources: text of the user's files by path.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources: dict[str, Source] = {}
        for file, text in sources.items():
            try:
                self._sources[file] = Source(ast.parse(text))
            except (SyntaxError, ValueError):
                continue

    def variable(self, file: str | None, function: str | None, name: str) -> Site | None:
        """The site of a variable: of a function's (nested functions of it may add as well), or of a module's.

        Args:
            file: the file; None for any.
            function: qualified name of the function that it belongs to; None for a module's.
            name: the variable.
        """
        found = []
        for path, source in self._sources.items():
            if file not in (None, path):
                continue
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Name) and node.id == name:
                    inside = source.function(node) or ""
                    if function is None or inside == function or inside.startswith(f"{function}."):
                        found.append((path, source, node))
        return self._site(found, function)

    def attribute(self, name: str) -> Site | None:
        """The site of an attribute of that name, of whatever object."""
        return self._site(
            [
                (path, source, node)
                for path, source in self._sources.items()
                for node in ast.walk(source.tree)
                if isinstance(node, ast.Attribute) and node.attr == name
            ]
        )

    def _site(self, uses: Sequence[tuple[str, Source, ast.expr]], home: str | None = None) -> Site | None:
        adding = [one for one in sorted(uses, key=lambda one: (one[0], one[2].lineno)) if _adds(*one[1:])]
        # what builds it up before the loop is not what grows, nor is what takes out of it
        steady = [one for one in adding if self._repeats(*one[1:]) and not _takes_out(*one[1:])] or adding
        if not steady:
            return None
        path, source, node = steady[0]
        others = {other.lineno for there, _, other in steady[1:] if there == path} - {node.lineno}
        return Site(
            path,
            _statement(source, node).lineno,
            source.function(node),
            tuple(sorted(others)),
            any(_takes_out(source, node) for _, source, node in uses),
            self._called_in_loop(home) or any(_empties(one, use) and self._again(one, use) for _, one, use in uses),
        )

    def _repeats(self, source: Source, node: ast.expr) -> bool:
        function = (source.function(node) or "").rpartition(".")[2]
        return source.loop(node) is not None or (bool(function) and function not in _FIRST)

    def _again(self, source: Source, node: ast.expr) -> bool:
        """Whether a statement that empties something runs more than once: in a loop, or in a function of its own."""
        function = source.function(node)
        if source.loop(node) is not None:
            return True
        if function is None or function.rpartition(".")[2] in _FIRST:
            return False
        return isinstance(node, ast.Attribute) or self._called_in_loop(function)

    def _called_in_loop(self, function: str | None) -> bool:
        if function is None:
            return False
        name = function.rpartition(".")[2]
        for source in self._sources.values():
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Call) and _called(node.func) == name and source.loop(node) is not None:
                    return True
        return False


def _called(function: ast.expr) -> str | None:
    return getattr(function, "attr", getattr(function, "id", None))


def _statement(source: Source, node: ast.AST) -> ast.stmt:
    return next(up for up in (node, *source.above(node)) if isinstance(up, ast.stmt))


def _element(source: Source, node: ast.expr) -> tuple[ast.expr, ast.AST | None, bool]:
    """The expression that names the holder or an element of it, what is around it, and whether it is an element."""
    element = False
    up = source.parents.get(node)
    while isinstance(up, ast.Subscript) and up.value is node:
        node, up, element = up, source.parents.get(up), True
    return node, up, element


def _adds(source: Source, node: ast.expr) -> bool:
    whole, up, element = _element(source, node)
    match up:
        case ast.AugAssign(target=target):
            return target is whole
        case ast.Attribute(attr=method) if method in _ADDS:
            call = source.parents.get(up)
            return isinstance(call, ast.Call) and call.func is up
        case ast.Assign(targets=targets, value=value) if whole in targets:
            return element or any(_same(other, node) for other in ast.walk(value))
        case _:
            return False


def _same(one: ast.AST, other: ast.expr) -> bool:
    match one, other:
        case ast.Name(id=a), ast.Name(id=b):
            return a == b
        case ast.Attribute(attr=a), ast.Attribute(attr=b):
            return a == b
        case _:
            return False


def _takes_out(source: Source, node: ast.expr) -> bool:
    whole, up, element = _element(source, node)
    match up:
        case ast.Attribute(attr=method) if method in _TAKES_OUT:
            return True
        case ast.Delete():
            return element
        case ast.Assign(targets=targets, value=value):
            if whole in targets:
                ring = any(isinstance(one, ast.Mod) for one in ast.walk(whole)) if element else False
                return ring or _is_part(value, node)
            return False
        case _:
            return False


def _is_part(value: ast.expr, node: ast.expr) -> bool:
    return isinstance(value, ast.Subscript) and _same(value.value, node) and isinstance(value.slice, ast.Slice)


def _empties(source: Source, node: ast.expr) -> bool:
    whole, up, element = _element(source, node)
    match up:
        case ast.Attribute(attr="clear"):
            return True
        case ast.Assign(targets=targets, value=value) if whole in targets and not element:
            return not any(_same(other, node) for other in ast.walk(value))
        case ast.Tuple() if isinstance(statement := source.parents.get(up), ast.Assign) and up in statement.targets:
            return True
        case ast.AnnAssign(target=target, value=value):
            return target is whole and value is not None
        case _:
            return False
