"""The first line of the function around a line, as a profile that knows no lines would show it.

A profile names a function by its first line, except one that ran already when the profile began: there it shows the
line that the function happened to be at, which has nothing to do with the operators that follow.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

MODULE_LEVEL = "<module>"


@dataclass(frozen=True, slots=True)
class _Function:
    """Lines of a function: its first, that of its first statement, its last."""

    name: str
    first: int
    body: int
    last: int


class DefLines:
    """First lines of functions in the user's files.

    Args:
        sources: text by file name.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._functions: dict[str, list[_Function]] = {}

    def first_line(self, file: str, line: int, function: str) -> int:
        """The first line (a decorator's, if it has any) of the function of that name around the line.

        The line itself when there is no such function in the text.
        """
        if function == MODULE_LEVEL:
            return 1
        return max((f.first for f in self._around(file, line, function)), default=line)

    def is_header(self, file: str, line: int, function: str) -> bool:
        """Whether the line belongs to the function's decorators and `def`, before its first statement."""
        innermost = max(self._around(file, line, function), key=lambda f: f.first, default=None)
        return innermost is not None and line < innermost.body

    def _around(self, file: str, line: int, name: str) -> list[_Function]:
        if file not in self._functions:
            self._functions[file] = _functions(self._sources.get(file, ""))
        return [f for f in self._functions[file] if f.name == name and f.first <= line <= f.last]


def _functions(text: str) -> list[_Function]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        _Function(
            node.name,
            min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
            node.body[0].lineno,
            node.end_lineno or node.lineno,
        )
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
