"""Replaces attention that is written out by `scaled_dot_product_attention`.

Recognised is one chain of statements that follow each other, whose intermediate results nothing else uses:

    scores = q @ k.transpose(-2, -1) / math.sqrt(d)         scale: / or * a number of Python's, or none
    scores = scores.masked_fill(mask == 0, float("-inf"))   or scores + mask, or none; `is_causal` for tril of ones
    weights = scores.softmax(dim=-1)
    weights = F.dropout(weights, p, training=self.training) or nn.Dropout, or none
    out = weights @ v                                       also inside of an expression, or returned

Anything else is not certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.attention import Attention, arguments
from gpudoctor.engine.edits.names import spelled
from gpudoctor.engine.edits.tree import Source
from gpudoctor.engine.edits.uses import uses

_NAME = "torch.nn.functional.scaled_dot_product_attention"
_MOST = 8
"""Statements behind the line that are looked at for the end of the chain."""


@dataclass(frozen=True, slots=True)
class _Match:
    first: int
    last: int
    product: cst.BaseExpression
    call: str


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the chain of statements that covers the line replaced by one call."""
    statements = [node for node in source.nodes(cst.SimpleStatementLine) if source.covers(node, line)]
    if len(statements) != 1:
        raise NotCertainError("no statement on the line")
    block = source.block(statements[0])
    body = list(block.body)
    at = next(i for i, statement in enumerate(body) if statement is statements[0])
    name = spelled(source, _NAME)
    if name is None:
        raise NotCertainError("the file does not import torch under a name of its own")
    for last in range(at, min(len(body), at + _MOST)):
        found = _match(source, body, last, name)
        if found is not None and found.first <= at:
            return _replaced(source, block, body, found)
    raise NotCertainError("no attention in a form that is certain to be the same")


def _match(source: Source, body: Sequence[cst.CSTNode], last: int, name: str) -> _Match | None:
    """The chain that ends with a statement; None when there is none."""
    final = body[last]
    if not isinstance(final, cst.SimpleStatementLine) or len(final.body) != 1:
        return None
    products = [node for node in source.all_nodes(final) if isinstance(node, cst.BinaryOperation | cst.Call)]
    for product in products:
        chain = Attention(source, body, last)
        if chain.read(product):
            chain.check()
            _only_used_in(source, chain, body, last)
            return _Match(chain.first, last, product, f"{name}({arguments(source, chain)})")
    return None


def _only_used_in(source: Source, chain: Attention, body: Sequence[cst.CSTNode], last: int) -> None:
    """Raises NotCertainError where an intermediate result has other uses, or was made before the chain."""
    inside = {id(node) for statement in body[chain.first : last + 1] for node in source.all_nodes(statement)}
    rebinding = _targets(body[last])
    for name in chain.intermediates:
        scope = source.scope(body[last])
        outside = [use for use in uses(source, name, scope) if id(use) not in inside]
        if outside and name not in rebinding:
            raise NotCertainError(f"{name} is used elsewhere")
        reads = sum(1 for _ in uses(source, name, body[last]))
        if reads > 1 + (name in rebinding):
            raise NotCertainError(f"{name} is used twice")


def _targets(statement: cst.CSTNode) -> set[str]:
    match statement:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))])]):
            return {name}
        case _:
            return set()


def _replaced(source: Source, block: cst.IndentedBlock | cst.Module, body: list[Any], found: _Match) -> cst.Module:
    call = cst.ensure_type(cst.parse_expression(found.call, config=source.module.config_for_parsing), cst.Call)
    call = call.with_changes(lpar=found.product.lpar, rpar=found.product.rpar)
    if _needs_none(source, found.product):
        call = call.with_changes(lpar=[], rpar=[])
    final = body[found.last].deep_replace(found.product, call)
    gone = body[found.first : found.last]
    comments = [line for statement in gone for line in statement.leading_lines]
    final = final.with_changes(leading_lines=[*comments, *final.leading_lines])
    return source.with_statements(block, [*body[: found.first], final, *body[found.last + 1 :]])


def _needs_none(source: Source, product: cst.BaseExpression) -> bool:
    """Whether parentheses around the product were there for the operator's sake: `(a @ v).transpose(1, 2)`."""
    return len(product.lpar) == 1 and "\n" not in source.source_of(product)
