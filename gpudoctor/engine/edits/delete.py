"""Deletes a call that stands alone as a statement, or takes the `with` away that it opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import full_name
from gpudoctor.engine.edits.tree import Source, is_literal
from gpudoctor.engine.edits.unused import without_import
from gpudoctor.engine.edits.waiting import check_nothing_waits


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module without the one such call on the line; a block that would be empty gets `pass`."""
    found = [
        call
        for call in source.nodes(cst.Call)
        if source.covers(call, line) and full_name(source, call.func) in values["calls"]
    ]
    if len(found) != 1:
        raise NotCertainError(f"{len(found) or 'no'} such calls on the line")
    call = found[0]
    if not all(is_literal(arg.value) and not arg.star for arg in call.args):
        raise NotCertainError("the call computes its arguments")
    if values["purpose"] == "wait":
        check_nothing_waits(source)
    parent = source.parent(call)
    if isinstance(parent, cst.Expr):
        return without_import(without_statement(source, parent), call.func)
    if isinstance(parent, cst.WithItem) and parent.asname is None:
        return without_item(source, parent)
    raise NotCertainError("what the call returns is used")


def without_statement(source: Source, small: cst.BaseSmallStatement) -> cst.Module:
    """The module without one small statement; comments above it stay."""
    holder = source.parent(small)
    if not isinstance(holder, cst.SimpleStatementLine | cst.SimpleStatementSuite):
        raise NotCertainError("the statement stands in no block")
    left = [other for other in holder.body if other is not small]
    if left:
        left[-1] = left[-1].with_changes(semicolon=holder.body[-1].semicolon)
        return source.replace(holder, holder.with_changes(body=left))
    if isinstance(holder, cst.SimpleStatementSuite):
        return source.replace(holder, holder.with_changes(body=[cst.Pass()]))
    block = source.block(holder)
    statements = list(block.body)
    at = next(i for i, statement in enumerate(statements) if statement is holder)
    del statements[at]
    if at < len(statements):
        statements[at] = _with_lines(statements[at], holder.leading_lines)
        return source.with_statements(block, statements)
    if isinstance(block, cst.Module):
        return block.with_changes(body=statements, footer=[*holder.leading_lines, *block.footer])
    if not statements:
        return source.with_statements(block, [holder.with_changes(body=[cst.Pass()])])
    footer = [*_indented(holder.leading_lines), *block.footer]
    return source.replace(block, block.with_changes(body=statements, footer=footer))


def without_item(source: Source, item: cst.WithItem) -> cst.Module:
    """The module with one item of a `with` gone, and with it the whole `with` when it was the only one."""
    holder = source.parent(item)
    assert isinstance(holder, cst.With)
    if holder.asynchronous is not None:
        raise NotCertainError("an asynchronous `with`")
    if len(holder.items) > 1:
        return _fewer_items(source, holder, item)
    if not isinstance(holder.body, cst.IndentedBlock) or holder.body.footer:
        raise NotCertainError("the block cannot be moved left as it is")
    if holder.body.header.comment is not None:
        raise NotCertainError("the block holds what cannot be moved left as it is")
    body = list(holder.body.body)
    body[0] = _with_lines(body[0], holder.leading_lines)
    return source.replace(holder, cst.FlattenSentinel(body))


def _fewer_items(source: Source, holder: cst.With, item: cst.WithItem) -> cst.Module:
    items = [other for other in holder.items if other is not item]
    if item is holder.items[-1]:
        items[-1] = items[-1].with_changes(comma=item.comma)
    if "#" in source.source_of(item):
        raise NotCertainError("a comment would be lost")
    return source.replace(holder, holder.with_changes(items=items))


def _with_lines(statement: Any, above: Sequence[cst.EmptyLine]) -> Any:
    return statement.with_changes(leading_lines=[*above, *statement.leading_lines])


def _indented(above: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    return [line.with_changes(indent=True) if line.comment is not None else line for line in above]
