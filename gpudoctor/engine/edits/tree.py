"""A file's concrete syntax tree, with lines and parents, and the way from text to text through it."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from gpudoctor.engine.edits import NotCertainError

_BOM = "\ufeff"
_FAULTS = (cst.ParserSyntaxError, cst.CSTValidationError, cst.CSTLogicError, SyntaxError, UnicodeError, RecursionError)

NodeT = TypeVar("NodeT", bound=cst.CSTNode)
Function = cst.FunctionDef
Loop = cst.For | cst.While
Scope = cst.FunctionDef | cst.ClassDef | cst.Lambda | cst.Module


class Source:
    """A parsed file. Nodes are those of `module`, which `replace` rebuilds."""

    def __init__(self, text: str) -> None:
        tree = cst.parse_module(text)
        self.code = tree.code
        self._wrapper = MetadataWrapper(tree)
        self.module = self._wrapper.module
        self._spans: Mapping[cst.CSTNode, CodeRange] = self._wrapper.resolve(PositionProvider)
        self._parents: Mapping[cst.CSTNode, cst.CSTNode] = self._wrapper.resolve(ParentNodeProvider)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node that holds this one."""
        return self._parents[node]

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, the nearest first."""
        while node is not self.module:
            node = self._parents[node]
            yield node

    def first_line(self, node: cst.CSTNode) -> int:
        """The line on which a node begins, decorators, comments and blank lines above it left out."""
        return int(self._spans[node].start.line)

    def last_line(self, node: cst.CSTNode) -> int:
        """The line on which a node ends."""
        return int(self._spans[node].end.line)

    def covers(self, node: cst.CSTNode, line: int) -> bool:
        """Whether a line is one of the node's."""
        return self.first_line(node) <= line <= self.last_line(node)

    def nodes(self, kind: type[NodeT], within: cst.CSTNode | None = None) -> Iterator[NodeT]:
        """All nodes of a kind, in the order of the text."""
        yield from (node for node in self.all_nodes(within) if isinstance(node, kind))

    def all_nodes(self, within: cst.CSTNode | None = None) -> Iterator[cst.CSTNode]:
        """All nodes, those of white space and commas too, in the order of the text."""
        stack: list[cst.CSTNode] = [within if within is not None else self.module]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children)

    def scope(self, node: cst.CSTNode) -> Scope:
        """The function, class, lambda or module in which a node stands."""
        return next(around for around in self.above(node) if isinstance(around, Scope))

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """The statement, of one line or compound, that a node is part of."""
        return next(around for around in (node, *self.above(node)) if isinstance(around, cst.BaseStatement))

    def replace(
        self, old: cst.CSTNode, new: cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[Any]
    ) -> cst.Module:
        """The module with one node replaced."""
        module = self.module.deep_replace(old, new)  # type: ignore[type-var]
        if not isinstance(module, cst.Module):
            raise NotCertainError("nothing of the file would be left")
        return module

    def source_of(self, node: cst.CSTNode) -> str:
        """A node's own text."""
        return self.module.code_for_node(node)

    def block(self, statement: cst.BaseStatement) -> cst.IndentedBlock | cst.Module:
        """The block that a statement stands in."""
        parent = self.parent(statement)
        if not isinstance(parent, cst.IndentedBlock | cst.Module):
            raise NotCertainError("the statement stands in no block of its own")
        return parent

    def with_statements(
        self, block: cst.IndentedBlock | cst.Module, statements: Sequence[cst.BaseStatement | cst.BaseSmallStatement]
    ) -> cst.Module:
        """The module with other statements in one of its blocks."""
        if isinstance(block, cst.Module):
            return block.with_changes(body=statements)
        return self.replace(block, block.with_changes(body=statements))

    def new_statement(self, source: str) -> cst.SimpleStatementLine:
        """A statement of one line, made of its source text, with the file's line ends."""
        statement = cst.parse_statement(source, config=self.module.config_for_parsing)
        if not isinstance(statement, cst.SimpleStatementLine):
            raise NotCertainError("not a statement of one line")
        return statement


def edited(text: str, change: Callable[[Source], cst.Module]) -> str:
    """The text after a change of its tree; what the tree does not keep (a byte order mark, form feeds) stays.

    Raises:
        NotCertainError: the text is no Python, or what comes out of it is none, or the change is not certain.
    """
    if "\ufffd" in text:
        raise NotCertainError("the file is not UTF-8 text")
    if "\r" in text and "\n" not in text:
        raise NotCertainError("the file's lines end in a carriage return alone: git and patch see one line")
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    try:
        source = _source(body)
    except _FAULTS:
        raise NotCertainError("the file cannot be parsed as Python") from None
    try:
        after = change(source).code
        if after == source.code:
            return text
        cst.parse_module(after)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
            ast.parse(after)
        return mark + _kept(body, source.code, after)
    except _FAULTS as error:
        raise NotCertainError(f"the change would not be valid Python ({type(error).__name__})") from None


def lines(text: str) -> list[str]:
    """Split at line feeds only, ends kept, as git and patch do."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def called_name(call: cst.Call) -> str | None:
    """The name of what is called, without what stands before its last dot."""
    function = call.func
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else None


def is_literal(value: cst.BaseExpression) -> bool:
    """Whether a value is a number, a string or one of the constants, as written."""
    if isinstance(value, cst.Name):
        return value.value in ("True", "False", "None")
    if isinstance(value, cst.UnaryOperation):
        return is_literal(value.expression)
    return isinstance(value, cst.Integer | cst.Float | cst.SimpleString)


@lru_cache(maxsize=8)
def _source(text: str) -> Source:
    return Source(text)


def _kept(before: str, read: str, after: str) -> str:
    """`after`, with the lines that did not change as they were before the parser read them."""
    if before == read:
        return after
    old, seen, new = lines(before), lines(read), lines(after)
    if len(old) != len(seen):
        raise NotCertainError("the file has characters that the parser does not keep")
    text: list[str] = []
    for tag, first, last, begin, end in difflib.SequenceMatcher(None, seen, new, autojunk=False).get_opcodes():
        if tag == "equal":
            text += old[first:last]
        elif old[first:last] == seen[first:last]:
            text += new[begin:end]
        else:
            raise NotCertainError("the line has characters that the parser does not keep")
    return "".join(text)
