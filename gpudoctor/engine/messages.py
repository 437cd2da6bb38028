"""Fills the texts of a rule with a row's columns: Jinja in its sandbox, strict about names, filters for units.

A template sees the columns and nothing else: no globals, no attributes or methods of values (`row.x` on a struct is its
field), and no operator that could make a text long (`*`, `**`, `%`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment

from gpudoctor.errors import RuleError
from gpudoctor.units import format_bytes, format_count, format_ns, format_share, plural

UNKNOWN = "unknown"
"""What a unit filter makes of null."""

_KEPT_FILTERS = (
    "capitalize",
    "default",
    "first",
    "join",
    "last",
    "length",
    "lower",
    "round",
    "sort",
    "unique",
    "upper",
)


class _Environment(SandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return isinstance(obj, LoopContext) and attr in ("first", "last", "index")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
        raise SecurityError(f"the operator {operator} is for numbers in the SQL, not for messages")


def render(template: str, row: Mapping[str, Any], where: str) -> str:
    """Fills a template.

    Args:
        template: Jinja source.
        row: the columns by name.
        where: what the messages begin with, e.g. the rule's id and file.

    Raises:
        RuleError: the template is no Jinja, uses a column that the row lacks, or what the sandbox forbids.
    """
    try:
        return _environment().from_string(template).render(row).strip()
    except jinja2.UndefinedError as error:
        raise RuleError(f"{where}: a text uses a column that the SQL does not give: {error.message}") from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError) as error:
        raise RuleError(f"{where}: a text cannot be rendered: {error}; see the filters in docs/rules.md") from None


def render_line(template: str, row: Mapping[str, Any], where: str) -> str:
    """Fills a template and joins its lines to one."""
    return " ".join(render(template, row, where).split())


def _optional(format_: Callable[[float], str], factor: int = 1) -> Callable[[float | None], str]:
    def apply(value: float | None) -> str:
        return UNKNOWN if value is None else format_(value * factor)

    return apply


def _plural(value: float | None, one: str, many: str | None = None) -> str:
    return f"{UNKNOWN} {many or one + 's'}" if value is None else plural(value, one, many)


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    environment = _Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    environment.globals.clear()
    environment.filters = {name: environment.filters[name] for name in _KEPT_FILTERS} | {
        "ns": _optional(format_ns),
        "us": _optional(format_ns, 10**3),
        "ms": _optional(format_ns, 10**6),
        "s": _optional(format_ns, 10**9),
        "bytes": _optional(format_bytes),
        "percent": _optional(format_share),
        "count": _optional(format_count),
        "plural": _plural,
    }
    return environment
