"""Puts statements that follow each other into a `with` block."""

from __future__ import annotations

from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.tree import Source


def wrapped(source: Source, first: cst.BaseStatement, last: cst.BaseStatement, context: str) -> cst.Module:
    """The module with the statements from the first to the last under `with context:`; comments above stay above."""
    block = source.block(first)
    body = list(block.body)
    begin = next(i for i, statement in enumerate(body) if statement is first)
    end = next((i for i, statement in enumerate(body) if statement is last), -1) + 1
    if end <= begin:
        raise NotCertainError("the statements do not stand in one block")
    held: list[Any] = body[begin:end]
    above = held[0].leading_lines
    held[0] = held[0].with_changes(leading_lines=[])
    holder = cst.With(
        items=[cst.WithItem(cst.parse_expression(context))], body=cst.IndentedBlock(held), leading_lines=above
    )
    return source.with_statements(block, [*body[:begin], holder, *body[end:]])
