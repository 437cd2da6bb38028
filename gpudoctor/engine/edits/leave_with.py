"""Ends a `with` block earlier: a statement and those behind it move out of it, when they only train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.names import full_name
from gpudoctor.engine.edits.tree import Source, called_name

_MOVABLE = frozenset(
    {
        "backward",
        "step",
        "zero_grad",
        "scale",
        "unscale_",
        "update",
        "clip_grad_norm_",
        "clip_grad_value_",
        "item",
        "detach",
    }
    | {"parameters", "append", "print", "float", "int", "len"}
)
"""What the statements may call: nothing that computes in the dtype of the context."""


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the statement of the line, and all behind it in the block, moved behind the `with`."""
    found = [node for node in source.nodes(cst.SimpleStatementLine) if source.covers(node, line)]
    if len(found) != 1:
        raise NotCertainError("no statement on the line")
    block = source.block(found[0])
    holder = source.parent(block) if isinstance(block, cst.IndentedBlock) else None
    if not isinstance(holder, cst.With) or holder.asynchronous is not None or len(holder.items) != 1:
        raise NotCertainError("the line does not stand directly in a `with` of one context")
    if not _is_context(source, holder.items[0], values["contexts"]):
        raise NotCertainError("the line stands in another context")
    assert isinstance(block, cst.IndentedBlock)
    body = list(block.body)
    at = next(i for i, statement in enumerate(body) if statement is found[0])
    if at == 0:
        raise NotCertainError("nothing would be left in the block")
    if not all(_only_trains(source, statement) for statement in body[at:]):
        raise NotCertainError("statements behind it may compute in the context's dtype")
    if block.footer:
        raise NotCertainError("comments behind the statements would change their place")
    inside = holder.with_changes(body=block.with_changes(body=body[:at]))
    return source.replace(holder, cst.FlattenSentinel([inside, *body[at:]]))


def _is_context(source: Source, item: cst.WithItem, contexts: tuple[str, ...]) -> bool:
    called = item.item.func if isinstance(item.item, cst.Call) else item.item
    return item.asname is None and full_name(source, called) in contexts


def _only_trains(source: Source, statement: cst.CSTNode) -> bool:
    """Whether a statement does nothing but back-propagate, step and count."""
    for node in source.all_nodes(statement):
        if isinstance(node, cst.BaseCompoundStatement) and not isinstance(node, cst.If):
            return False
        if isinstance(node, cst.Call) and called_name(node) not in _MOVABLE:
            return False
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
            return False
    return True
