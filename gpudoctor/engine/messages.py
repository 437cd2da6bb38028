"""Fills the texts of a rule with a row's columns: Jinja in its sandbox, strict about names, filters for units.

A template sees the columns and nothing else: no globals, no attributes or methods of values (`row.x` on a struct is its
field), and no operator or filter that could make a text long. `grammar.py` says what it may be made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment

from gpudoctor.engine.grammar import CONCATENATE, NotAllowedError, parse
from gpudoctor.errors import RuleError
from gpudoctor.units import format_bytes, format_count, format_ns, format_share, plural

UNKNOWN = "unknown"
"""What a unit filter makes of null."""

MAX_CHARS = 10_000
"""Longest text, whole or in part: about four screens. The rest of a longer one is replaced by `…`."""

_MAX_NUMBER = 1e300
"""Largest product: repeated squaring of whole numbers would double their digits without end."""

_MAX_DIGITS = 9
"""Most decimals that `round` takes."""

_SAME_WORDS = 5
"""Words at the beginning that make two texts alike: Dynamo words a break's reason and its explanation that way."""

_NO_FACT = frozenset(
    re.findall(
        r"\w+",
        "a an and are at attempt attempted be by call called calls can cannot case cases config currently do does doing"
        " dynamo for from here how in is it its know not of on or support supported supporting supports that the this"
        " to torch trace traced tracing unsupported was were when which with yet",
    )
)
"""Words that name no fact of a break: articles, and what Dynamo says of every one ("does not know how to trace")."""

_KEPT_FILTERS = ("capitalize", "default", "first", "last", "length", "lower", "sort", "unique", "upper")


class _Environment(SandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return False

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int | float) and isinstance(right, int | float):
            number = left + right if operator == "+" else left * right if operator == "*" else None
            if number is not None and abs(number) <= _MAX_NUMBER:
                return number
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            return _short(left + right)
        raise SecurityError(f"the operator {operator} is for numbers in the SQL, not for messages")


def check(template: str, where: str) -> None:
    """Refuses a template that is no Jinja or has more than output, if, set, filters and tests.

    Args:
        template: Jinja source.
        where: what the message begins with.

    Raises:
        RuleError: naming the construct.
    """
    try:
        _compiled(template)
    except NotAllowedError as error:
        raise RuleError(f"{where}: a text {error}") from None
    except RecursionError:
        raise RuleError(f"{where}: a text is nested too deeply; do the work in the SQL") from None
    except (jinja2.TemplateError, SyntaxError, ValueError, MemoryError) as error:
        raise RuleError(f"{where}: a text cannot be read: {error}; see the filters in docs/rules.md") from None


def render(template: str, row: Mapping[str, Any], where: str) -> str:
    """Fills a template.

    Args:
        template: Jinja source.
        row: the columns by name.
        where: what the messages begin with, e.g. the rule's id and file.

    Returns:
        The text, cut off with `…` after `MAX_CHARS`.

    Raises:
        RuleError: the template is no Jinja, uses a column that the row lacks, or what the sandbox forbids.
    """
    check(template, where)
    try:
        return str(_short(_compiled(template).render(row).strip()))
    except jinja2.UndefinedError as error:
        raise RuleError(f"{where}: a text uses a column that the SQL does not give: {error.message}") from None
    except RecursionError:
        raise RuleError(f"{where}: a text is nested too deeply; do the work in the SQL") from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise RuleError(f"{where}: a text cannot be rendered: {error}; see the filters in docs/rules.md") from None


def render_line(template: str, row: Mapping[str, Any], where: str) -> str:
    """Fills a template and joins its lines to one."""
    return " ".join(render(template, row, where).split())


def alike(text: str | None, others: str | Iterable[str | None] | None) -> bool:
    """Whether a text says what another (or one of several) says: the test `is like`.

    Case and punctuation aside, one contains the other, both begin with the same five words, or the text has no word of
    its own beyond those that carry no fact ("Dynamo does not support …"). Null is like nothing.
    """
    words = _words(text)
    facts = _facts(words)
    for other in [others] if others is None or isinstance(others, str) else others:
        theirs = _words(other)
        if facts and facts <= _facts(theirs):
            return True
        if words and theirs and (_within(words, theirs) or _within(theirs, words)):
            return True
        if len(words) >= _SAME_WORDS and words[:_SAME_WORDS] == theirs[:_SAME_WORDS]:
            return True
    return False


def _words(text: str | None) -> list[str]:
    return re.findall(r"\w+", (text or "").lower())


def _facts(words: list[str]) -> set[str]:
    """The words that say something, each in the singular."""
    return {word.removesuffix("s") for word in words if word not in _NO_FACT}


def _within(words: list[str], others: list[str]) -> bool:
    return f" {' '.join(words)} " in f" {' '.join(others)} "


def _short(value: Any) -> Any:
    """The value; a text that is too long is cut."""
    return value[: MAX_CHARS - 1] + "…" if isinstance(value, str) and len(value) > MAX_CHARS else value


def _bounded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """The filter with bounded texts before and after; `wraps` keeps Jinja's marks on it."""

    @wraps(filter_)
    def apply(*args: Any, **kwargs: Any) -> Any:
        return _short(filter_(*map(_short, args), **kwargs))

    return apply


def _join(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    """The values with a separator between them; `attribute` takes that field of each struct."""
    parts: list[str] = []
    size = 0
    for value in values:
        parts.append(str(value if attribute is None else value[attribute]))
        size += len(parts[-1]) + len(separator)
        if size > MAX_CHARS + len(separator):
            break
    return separator.join(parts)


def _round(value: float, digits: int = 0) -> float:
    if not 0 <= digits <= _MAX_DIGITS:
        raise ValueError(f"round takes 0 to {_MAX_DIGITS} digits")
    return round(float(value), digits)


def _optional(format_: Callable[[float], str], factor: int = 1) -> Callable[[float | None], str]:
    def apply(value: float | None) -> str:
        if isinstance(value, str | list | dict):  # times the factor it would be a very long one
            raise TypeError(f"{value!r:.40} is no number")
        return UNKNOWN if value is None else format_(value * factor)

    return apply


def _plural(value: float | None, one: str, many: str | None = None) -> str:
    return f"{UNKNOWN} {many or one + 's'}" if value is None else plural(value, one, many)


@lru_cache(maxsize=256)
def _compiled(template: str) -> jinja2.Template:
    environment = _environment()
    return environment.from_string(parse(environment, template))


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    environment = _Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, finalize=lambda value: _short(str(value))
    )
    environment.globals.clear()
    environment.tests["like"] = alike
    filters: dict[str, Callable[..., Any]] = {name: environment.filters[name] for name in _KEPT_FILTERS} | {
        "ns": _optional(format_ns),
        "us": _optional(format_ns, 10**3),
        "ms": _optional(format_ns, 10**6),
        "s": _optional(format_ns, 10**9),
        "bytes": _optional(format_bytes),
        "percent": _optional(format_share),
        "count": _optional(format_count),
        "plural": _plural,
        "round": _round,
        "join": _join,
        CONCATENATE: _join,
    }
    environment.filters = {name: _bounded(filter_) for name, filter_ in filters.items()}
    return environment
