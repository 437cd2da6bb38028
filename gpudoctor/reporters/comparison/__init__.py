"""Reports of a Comparison, one module a format; each takes it and returns text."""

from __future__ import annotations

from collections.abc import Callable

from gpudoctor.compare import Comparison, to_json
from gpudoctor.reporters.comparison import console, html, markdown

FORMATS: dict[str, Callable[[Comparison], str]] = {
    "full": console.render,
    "concise": console.concise,
    "json": to_json,
    "markdown": markdown.render,
    "html": html.render,
}


def render(shape: str, comparison: Comparison) -> str:
    """A comparison in one of `FORMATS`."""
    return FORMATS[shape](comparison)
