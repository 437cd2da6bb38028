"""What the texts of a rule may be made of: Jinja's syntax tree is read before it runs, as the SQL's is in `guard.py`.

Output, if, set, filters, tests and inline if are enough for a message. Loops, macros, calls and everything that pulls
in other templates are refused: with them a text could run, or grow, without end.
"""

from __future__ import annotations

from jinja2 import Environment, nodes
from jinja2.visitor import NodeTransformer

MAX_TEMPLATE_CHARS = 4000
"""Longest template: the longest of the built-in rules has under 700 characters."""

CONCATENATE = "concatenate"
"""Filter that stands in for the operator `~`, so that its result can be bounded."""

_ALLOWED = frozenset(
    (
        *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.Assign),
        *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Getattr, nodes.Getitem, nodes.Slice),
        *(nodes.Filter, nodes.Test, nodes.Keyword, nodes.CondExpr),
        *(nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand),
        *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Neg, nodes.Pos, nodes.Concat),
    )
)

_NAMES: dict[type[nodes.Node], str] = {
    nodes.For: "{% for %}",
    nodes.Macro: "{% macro %}",
    nodes.CallBlock: "{% call %}",
    nodes.FilterBlock: "{% filter %}",
    nodes.Include: "{% include %}",
    nodes.Import: "{% import %}",
    nodes.FromImport: "{% from … import %}",
    nodes.Extends: "{% extends %}",
    nodes.Block: "{% block %}",
    nodes.With: "{% with %}",
    nodes.AssignBlock: "{% set %} with a body",
    nodes.Scope: "{% autoescape %}",
    nodes.Call: "a call `…()`",
    nodes.Dict: "a dict `{…}`",
    nodes.Pow: "the operator `**`",
    nodes.Mod: "the operator `%`",
}


class NotAllowedError(ValueError):
    """Which construct a text uses that texts of rules must not have."""


def parse(environment: Environment, template: str) -> nodes.Template:
    """The syntax tree of a template, ready to be compiled.

    Raises:
        NotAllowedError: it is too long, or has a construct that is not allowed.
        jinja2.TemplateSyntaxError: it is no Jinja.
        RecursionError: it is nested too deeply.
    """
    if len(template) > MAX_TEMPLATE_CHARS:
        raise NotAllowedError(f"is {len(template)} characters long; the limit is {MAX_TEMPLATE_CHARS}")
    tree = environment.parse(template)
    for node in (tree, *tree.find_all(nodes.Node)):
        kind = type(node)
        if kind not in _ALLOWED:
            raise _refused(_NAMES.get(kind, kind.__name__))
        if isinstance(node, nodes.Assign):
            _check_set(node)
    _Concatenations().visit(tree)
    return tree


def _check_set(node: nodes.Assign) -> None:
    """Lists of lists, each named by a `set`, would double with every line of the template."""
    if not isinstance(node.target, nodes.Name):
        raise _refused("{% set %} of several names")
    if any(isinstance(part, nodes.List | nodes.Tuple) for part in (node.node, *node.node.find_all(nodes.Expr))):
        raise _refused("a list in {% set %}")


def _refused(construct: str) -> NotAllowedError:
    return NotAllowedError(
        f"uses {construct}; texts of rules have output, if, set, filters and tests only (join(', ') takes a list)"
    )


class _Concatenations(NodeTransformer):
    """Puts the filter in the place of each `~`."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 (Jinja's name)
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, CONCATENATE, [], [], None, None, lineno=node.lineno)
