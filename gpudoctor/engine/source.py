"""What a rule's findings need from the user's source text: excerpt, enclosing function, statement, fingerprint line.

All functions take the text of one file and 1-based lines, and answer None or nothing where the text is no Python (a
notebook cell with magics, another version's syntax) or the line is not in it.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import lru_cache

from gpudoctor.diagnosis import SourceLine

EXCERPT_LINES = 3
"""Lines shown above and below the culprit."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(text: str) -> list[str]:
    """The lines without their ends, split as Python splits source: at CR, LF or CRLF only."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def excerpt(text: str, line: int, around: int = EXCERPT_LINES) -> tuple[SourceLine, ...]:
    """The lines around a line, itself marked as the culprit; empty when the text has no such line."""
    lines = lines_of(text)
    if lines and lines[-1] == "":
        lines.pop()
    if not 1 <= line <= len(lines):
        return ()
    first, last = max(1, line - around), min(len(lines), line + around)
    return tuple(SourceLine(n, lines[n - 1], n == line) for n in range(first, last + 1))


def enclosing_function(text: str, line: int) -> str | None:
    """Qualified name of the innermost function around a line, e.g. `Model.forward`; None at module level."""
    tree = _parsed(text)
    if tree is None:
        return None
    path: list[str] = []
    found: str | None = None
    node: ast.AST | None = tree
    while node is not None:
        node = next((child for child in _scopes(node) if _first(child) <= line <= (child.end_lineno or 0)), None)
        if node is not None:
            path.append(node.name)
            if isinstance(node, _FUNCTIONS):
                found = ".".join(path)
    return found


def statement_lines(text: str, line: int) -> tuple[int, int]:
    """First and last line of the smallest statement around a line; of `if`, `for`, `def`, … only the header."""
    best = (line, line)
    width: int | None = None
    tree = _parsed(text)
    lines = lines_of(text)
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.stmt):
            continue
        first, last = _first(node), node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.AST):
            last = max(node.lineno, _first(body[0]) - 1)
            while last > node.lineno and lines[last - 1].lstrip()[:1] in ("", "#"):
                last -= 1  # a comment above the body belongs to the body
        if first <= line <= last and (width is None or last - first < width):
            best, width = (first, last), last - first
    return best


def normalised_line(text: str, line: int) -> str:
    """The line without its comment and with runs of blanks collapsed; empty when the text has no such line."""
    lines = lines_of(text)
    if not 1 <= line <= len(lines):
        return ""
    raw = lines[line - 1]
    at = comments(text).get(line)
    return " ".join((raw[: at[0]] if at else raw).split())


@lru_cache(maxsize=64)
def comments(text: str) -> dict[int, tuple[int, str]]:
    """The real comments (not those inside strings): column and text by line."""
    found: dict[int, tuple[int, str]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines_of(text))).readline):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = (token.start[1], token.string)
    except (tokenize.TokenError, SyntaxError):
        pass  # what was read before the fault still counts
    return found


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module | None:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _scopes(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes that stand directly in a node, however deep in its other statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        else:
            yield from _scopes(child)


def _first(node: ast.AST) -> int:
    """First line of a node, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    line: int = getattr(node, "lineno", 1)
    return min([line, *(decorator.lineno for decorator in decorators)])
