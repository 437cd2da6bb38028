"""Inserts a statement before or behind the one on a line, or behind the imports at the top of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import bound_otherwise, full_name, import_end
from gpudoctor.engine.edits.tree import Source

_BLANK = cst.EmptyLine(indent=False)


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the statement; unchanged where the file has it already."""
    new = source.new_statement(values["statement"])
    _check_names(source, new)
    if values["place"] == "imports":
        return behind_imports(source, new)
    return beside(source, line, new, values["place"] == "after")


def behind_imports(source: Source, new: cst.SimpleStatementLine) -> cst.Module:
    """The module with a statement behind the imports at its top, a blank line between."""
    body = list(source.module.body)
    if any(_same(source, statement, new) for statement in source.nodes(cst.SimpleStatementLine)):
        return source.module
    at = import_end(source.module)
    if at == 0:
        raise NotCertainError("the file has no imports at its top")
    return source.module.with_changes(body=[*body[:at], new.with_changes(leading_lines=[_BLANK]), *body[at:]])


def beside(source: Source, line: int, new: cst.SimpleStatementLine, after: bool) -> cst.Module:
    """The module with a statement before or behind the one that covers the line."""
    found = [node for node in source.nodes(cst.SimpleStatementLine) if source.covers(node, line)]
    if len(found) != 1:
        raise NotCertainError("the line has no statement that another can stand beside")
    holder = found[0]
    if any(isinstance(small, cst.Import | cst.ImportFrom) for small in holder.body):
        raise NotCertainError("the line is an import")
    if len(holder.body) != 1 or (isinstance(holder.body[0], cst.Return) and after):
        raise NotCertainError("the line has several statements, or ends the function")
    block = source.block(holder)
    statements = list(block.body)
    at = next(i for i, statement in enumerate(statements) if statement is holder)
    neighbour = at + 1 if after else at - 1
    if 0 <= neighbour < len(statements) and _same(source, statements[neighbour], new):
        return source.module
    if after:
        return source.with_statements(block, [*statements[: at + 1], new, *statements[at + 1 :]])
    above = new.with_changes(leading_lines=holder.leading_lines)
    return source.with_statements(
        block, [*statements[:at], above, holder.with_changes(leading_lines=[]), *statements[at + 1 :]]
    )


def _same(source: Source, statement: cst.CSTNode, new: cst.SimpleStatementLine) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and len(statement.body) == 1
        and statement.body[0].deep_equals(new.body[0])
    )


def _check_names(source: Source, new: cst.SimpleStatementLine) -> None:
    """What the statement calls must be what the file imports under that name."""
    calls = source.nodes(cst.Call, new)
    for call in calls:
        head = call.func
        while isinstance(head, cst.Attribute):
            head = head.value
        if not isinstance(head, cst.Name) or bound_otherwise(source, head.value) or full_name(source, head) is None:
            raise NotCertainError("the statement needs a name that the file does not import")
