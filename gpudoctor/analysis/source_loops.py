"""The Python loops of the user's source: which one runs a line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpudoctor.analysis import carried

_LONGEST = 80  # characters of a loop's head that are shown


@dataclass(frozen=True, slots=True)
class Loop:
    """A `for`, a `while` or a comprehension.

    Attributes:
        line: line of its head, 1-based.
        first: first line of what it repeats.
        last: last line of what it repeats.
        head: its head as source text, e.g. `for t in range(steps)`.
        carried: names of which an iteration reads what the one before wrote.
    """

    line: int
    first: int
    last: int
    head: str
    carried: tuple[str, ...] = ()


class SourceLoops:
    """Finds the loop around a line; a file that does not parse has none.

    Args:
        sources: text of the user's files by path.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._loops: dict[str, list[Loop]] = {}

    def around(self, file: str, line: int) -> Loop | None:
        """The innermost loop of the same function that repeats the line."""
        if file not in self._loops:
            self._loops[file] = list(_loops(self._sources.get(file, "")))
        found = [loop for loop in self._loops[file] if loop.first <= line <= loop.last]
        return max(found, key=lambda loop: (loop.first, -loop.last), default=None)


def _loops(text: str) -> Iterator[Loop]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor):
            head = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
            yield Loop(node.lineno, node.body[0].lineno, _end(node.body[-1]), _short(head), carried.names(node))
        elif isinstance(node, ast.While):
            head = f"while {ast.unparse(node.test)}"
            yield Loop(node.lineno, node.body[0].lineno, _end(node.body[-1]), _short(head), carried.names(node))
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            inner = node.generators[-1]
            head = f"for {ast.unparse(inner.target)} in {ast.unparse(inner.iter)}"
            yield Loop(inner.target.lineno, node.lineno, _end(node), _short(head))


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _short(head: str) -> str:
    return head if len(head) <= _LONGEST else head[: _LONGEST - 1] + "…"
