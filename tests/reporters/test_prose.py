"""Markdown of rules as HTML: what is understood, and what stays text."""

from __future__ import annotations

import pytest

from gpudoctor.reporters.prose import blocks, inline


def test_code_paragraphs_lists_and_fences_are_understood() -> None:
    page = blocks("Use `a < b`.\n\n- one\n- two\n\n```python\nif a < b:\n    pass\n```\n")
    assert page == (
        "<p>Use <code>a &lt; b</code>.</p>\n<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"
        '<pre><code class="language-python">if a &lt; b:\n    pass\n</code></pre>\n'
    )


@pytest.mark.parametrize("text", ["<b>bold</b>", "<!-- x -->", "&amp; &lt;", "</p></div>"])
def test_html_is_text(text: str) -> None:
    assert blocks(text).unescape().strip() == f"<p>{text}</p>"


def test_names_with_underscores_and_backslashes_stay_whole() -> None:
    assert inline(r"__getitem__ in C:\_x\*.py, 2 * 3 * 4") == r"__getitem__ in C:\_x\*.py, 2 * 3 * 4"


def test_links_lead_to_the_web_only() -> None:
    assert inline("[doc](https://pytorch.org/x)") == '<a href="https://pytorch.org/x" rel="noreferrer">doc</a>'
    for address in ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "#f-1", "//host/x"):
        assert "<a" not in inline(f"[doc]({address})")


def test_a_number_stays_with_its_unit_but_code_stays_as_it_is() -> None:
    assert inline("5 ms of `a 5 ms b`") == "5\u00a0ms of <code>a 5 ms b</code>"


def test_what_looks_like_a_block_is_text_inside_a_line() -> None:
    assert inline("# no heading\n- no list") == "# no heading - no list"
