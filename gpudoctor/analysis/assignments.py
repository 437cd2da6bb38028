"""Where the user's code assigns an attribute: who changes what a compiled graph guards on."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping


def lines(sources: Mapping[str, str], attribute: str) -> list[tuple[str, int]]:
    """(file, line) of every assignment to `….attribute` outside of constructors, in order.

    Args:
        sources: texts of the user's files by name; what is no Python is passed by.
        attribute: name of the attribute.
    """
    return [(file, line) for file in sorted(sources) for line, name in _assigned(sources[file]) if name == attribute]


@functools.lru_cache(maxsize=64)
def _assigned(text: str) -> tuple[tuple[int, str], ...]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_walk(tree, False))


def _walk(node: ast.AST, constructing: bool) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        inside = constructing
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = child.name == "__init__"
        targets: list[ast.expr] = []
        if isinstance(child, ast.Assign):
            targets = child.targets
        elif isinstance(child, ast.AugAssign | ast.AnnAssign):
            targets = [child.target]
        if not inside:
            yield from ((t.lineno, t.attr) for target in targets for t in _attributes(target))
        yield from _walk(child, inside)


def _attributes(target: ast.expr) -> Iterator[ast.Attribute]:
    if isinstance(target, ast.Attribute):
        yield target
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _attributes(element)
