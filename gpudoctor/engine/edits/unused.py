"""Takes away an import of Python's library that a change has left without a use."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import libcst as cst

from gpudoctor.engine.edits.names import dotted
from gpudoctor.engine.edits.tree import Source


def without_import(module: cst.Module, used: cst.BaseExpression) -> cst.Module:
    """The module without the one import that `used` needed; as it is where anything else may need that as well.

    Only imports from Python's library go: importing another package may do something by itself. A name in a text
    (`__all__`, a doctest, an annotation) counts as a use.

    Args:
        module: the changed module.
        used: what was called and is gone, e.g. `gc.collect`.
    """
    name = (dotted(used) or "").partition(".")[0]
    source = Source(module.code)
    found = [alias for alias in source.nodes(cst.ImportAlias) if _bound(alias) == name]
    if len(found) != 1 or not _may_go(source, found[0]):
        return module
    statement = source.parent(found[0])
    own = set(source.all_nodes(statement))
    for node in source.all_nodes():
        if isinstance(node, cst.Name) and node.value == name and node not in own:
            return module
        if isinstance(node, cst.SimpleString | cst.FormattedStringText) and re.search(rf"\b{name}\b", node.value):
            return module
    return _without(source, found[0])


def _bound(alias: cst.ImportAlias) -> str:
    """The name that an import binds."""
    return (dotted(alias.asname.name if alias.asname is not None else alias.name) or "").partition(".")[0]


def _may_go(source: Source, alias: cst.ImportAlias) -> bool:
    """Whether it is a plain import of Python's library at the top of the file, without a comment of its own."""
    statement = source.parent(alias)
    assert isinstance(statement, cst.Import | cst.ImportFrom)
    holder = source.parent(statement)
    if not isinstance(holder, cst.SimpleStatementLine) or len(holder.body) != 1 or holder.trailing_whitespace.comment:
        return False
    if source.parent(holder) is not source.module or "#" in source.source_of(statement):
        return False
    if isinstance(statement, cst.ImportFrom):
        origin = dotted(statement.module) if statement.module is not None and not statement.relative else None
    else:
        origin = dotted(alias.name)
    return (origin or "").partition(".")[0] in sys.stdlib_module_names - {"__future__"}


def _without(source: Source, alias: cst.ImportAlias) -> cst.Module:
    statement = source.parent(alias)
    assert isinstance(statement, cst.Import | cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar)
    left = [one for one in statement.names if one is not alias]
    if left:
        if alias is statement.names[-1]:
            left[-1] = left[-1].with_changes(comma=alias.comma)
        return source.replace(statement, statement.with_changes(names=left))
    holder = source.parent(statement)
    body = list(source.module.body)
    at = next(i for i, one in enumerate(body) if one is holder)
    assert isinstance(holder, cst.SimpleStatementLine)
    if at + 1 < len(body):
        above = _above(holder.leading_lines, getattr(body[at + 1], "leading_lines", ()), first=at == 0)
        body[at + 1] = body[at + 1].with_changes(leading_lines=above)
    del body[at]
    return source.module.with_changes(body=body)


def _above(mine: Sequence[cst.EmptyLine], next_: Sequence[cst.EmptyLine], first: bool) -> list[cst.EmptyLine]:
    """The lines above the statement that follows: one gap where there were two, none at the file's beginning."""
    comments = list(next_)
    while comments and comments[0].comment is None:
        del comments[0]
    gap = [] if first else list(next_[: len(next_) - len(comments)])
    if any(line.comment is not None for line in mine) or len(mine) > len(gap):
        gap = list(mine)
    return [*gap, *comments]
