"""Statements that differ between two revisions of the sources, wherever they stand: what a change can come from.

Statements are compared as the parser sees them, so that comments, line breaks and quotes are no edits, and as sets, so
that a moved function is none.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """One statement of the head that the base does not have; or, removed, one of the base that the head lacks.

    Attributes:
        file: the file in the head.
        line: its first line in the head; of a removed one the line of what stands there now.
        last: its last line, of `if`, `for`, `def` that of the header.
        function: enclosing function.
        text: the statement, as the parser writes it.
        binds: names that it assigns.
        removed: the head lacks it.
    """

    file: str
    line: int
    last: int
    function: str | None
    text: str
    binds: frozenset[str]
    removed: bool = False


def edits(base: Mapping[str, str], head: Mapping[str, str]) -> tuple[Edit, ...]:
    """The edited statements of every file of the head, new ones before removed ones.

    Args:
        base: text of the base's files by path.
        head: of the head's; a file that is no Python has no statements.
    """
    elsewhere = Counter(one.text for name, text in base.items() if name not in head for one in statements(name, text))
    made: list[Edit] = []
    gone: list[Edit] = []
    for name, text in head.items():
        if base.get(name) == text:
            continue
        now, before = list(statements(name, text)), list(statements(name, base.get(name, "")))
        left = Counter(one.text for one in before)
        for one in now:
            if left[one.text]:
                left[one.text] -= 1
            elif elsewhere[one.text]:
                elsewhere[one.text] -= 1
            else:
                made.append(one)
        gone += _removed(name, before, now)
    return (*made, *gone)


def statements(name: str, text: str) -> Iterator[Edit]:
    """Every statement of a file that does something, as an Edit; of compound ones the header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        yield from _of_body(name, tree, None)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def used(text: str) -> frozenset[str]:
    """Names that a statement reads, attributes of `self` among them; empty when it is no Python alone."""
    try:
        tree = ast.parse(_complete(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(_names(tree, ast.Load))


def _complete(text: str) -> str:
    """A header with a body, so that it can be parsed."""
    return f"{text} pass" if text.rstrip().endswith(":") else text


def _of_body(name: str, node: ast.AST, function: str | None) -> Iterator[Edit]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = child.name if function is None else f"{function}.{child.name}"
        if isinstance(child, ast.stmt) and not _is_text(child):
            yield _edit(name, child, inside)
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _of_body(name, child, inside)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _edit(name: str, node: ast.stmt, function: str | None) -> Edit:
    header = _header(node)
    body = getattr(node, "body", None)
    last = node.end_lineno or node.lineno
    if isinstance(body, list) and body and isinstance(body[0], ast.AST):
        last = max(node.lineno, getattr(body[0], "lineno", node.lineno + 1) - 1)
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    return Edit(name, first, last, function, header, frozenset(_names(node, ast.Store, nested=False)))


def _header(node: ast.stmt) -> str:
    """The statement as the parser writes it, on one line; of a compound one the header alone."""
    text = ast.unparse(node)
    if not hasattr(node, "body"):
        return " ".join(text.split())
    lines = text.splitlines()
    decorators = [line for line in lines if line.startswith("@")]
    rest = lines[len(decorators) :]
    return " ".join(" ".join([*decorators, rest[0] if rest else ""]).split())


def _names(node: ast.AST, context: type[ast.expr_context], nested: bool = True) -> Iterator[str]:
    """Names in a node in one context, and attributes of `self` as `self.name`."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, context):
        yield node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        if isinstance(node.ctx, context):
            yield f"self.{node.attr}"
        return
    for child in ast.iter_child_nodes(node):
        if nested or not isinstance(child, ast.stmt):
            yield from _names(child, context, nested)


def _removed(name: str, before: list[Edit], now: list[Edit]) -> Iterator[Edit]:
    """Statements of the base that the head lacks, at the line where they would stand."""
    left = Counter(one.text for one in now)
    at = 1
    where = {one.text: one for one in now}
    for one in before:
        if left[one.text]:
            left[one.text] -= 1
            at = where[one.text].line
        else:
            yield Edit(name, at, at, one.function, one.text, one.binds, removed=True)
