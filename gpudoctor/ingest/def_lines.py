"""The first line of the function around a line, as a profile that knows no lines would show it.

A profile names a function by its first line, except one that ran already when the profile began: there it shows the
line that the function happened to be at, which has nothing to do with the operators that follow.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

MODULE_LEVEL = "<module>"


class DefLines:
    """First lines of functions in the user's files.

    Args:
        sources: text by file name.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._functions: dict[str, list[tuple[str, int, int]]] = {}

    def first_line(self, file: str, line: int, function: str) -> int:
        """The first line (a decorator's, if it has any) of the function of that name around the line.

        The line itself when there is no such function in the text.
        """
        if function == MODULE_LEVEL:
            return 1
        if file not in self._functions:
            self._functions[file] = _functions(self._sources.get(file, ""))
        around = [first for name, first, last in self._functions[file] if name == function and first <= line <= last]
        return max(around, default=line)


def _functions(text: str) -> list[tuple[str, int, int]]:
    """Name, first and last line of every function."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        (node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
