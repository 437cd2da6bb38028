"""Markdown of rules and remedies as HTML that can do nothing but be read.

markdown-it-py with everything off that a remedy does not need: no raw HTML, no images, no headings (the page has its
own outline), links to the web only. rich brings markdown-it-py along, so it costs no further dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from gpudoctor.reporters.wording import glued, one_line, visible

_RULES = ("autolink", "backticks", "fence", "link", "list", "newline")
"""No emphasis and no backslash escapes: messages carry names such as `__getitem__` and paths, with no backticks."""


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 (the library's name)
        return url.startswith(("https://", "http://"))


def blocks(text: str) -> Markup:
    """Paragraphs, lists, fenced code and what `inline` knows."""
    parser = _parser()
    tokens = parser.parse(visible(text.replace("\r\n", "\n"), keep="\n\t"))
    for token in tokens:
        _finish(token.children or ())
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def inline(text: str) -> Markup:
    """One run of text with `code` and links; whatever looks like a block is text."""
    parser = _parser()
    tokens = parser.parseInline(one_line(text))
    for token in tokens:
        _finish(token.children or ())
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> MarkdownIt:
    return _Markdown("zero", {"html": False}).enable(_RULES)


def _finish(tokens: Sequence[Token]) -> None:
    """Keeps numbers and their units on one line, and keeps a link's target from learning where it was clicked."""
    for token in tokens:
        if token.type == "text":
            token.content = glued(token.content)
        elif token.type == "link_open":
            token.attrSet("rel", "noreferrer")
