from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.engine.source import enclosing_function, excerpt, normalised_line, statement_lines
from gpudoctor.engine.suppression import DEFAULT_REASON, suppressed

TEXT = """\
import torch
class Model:
    @decorated(
        1)
    def forward(self, x):  # a comment
        y = call(
            x,
            2,  # gpudoctor: ignore[GD101, host-sync] because # more
        )
        if (y and
            x):
            # gpudoctor: ignore
            z = "# gpudoctor: ignore"
        return z

    async def other(self):
        def inner(): return 1
        return lambda: 3
"""


@pytest.mark.parametrize(
    ("line", "function"),
    [(1, None), (2, None), (3, "Model.forward"), (7, "Model.forward"), (17, "Model.other.inner"), (18, "Model.other")],
)
def test_the_innermost_function_owns_a_line(line: int, function: str | None) -> None:
    assert enclosing_function(TEXT, line) == function


@pytest.mark.parametrize(("line", "lines"), [(1, (1, 1)), (4, (3, 5)), (7, (6, 9)), (10, (10, 11)), (13, (13, 13))])
def test_a_statement_ends_where_its_body_begins(line: int, lines: tuple[int, int]) -> None:
    assert statement_lines(TEXT, line) == lines


def test_an_excerpt_has_three_lines_around_the_culprit() -> None:
    shown = excerpt("1\n2\n3\n4\n5\n", 4)
    assert [(line.number, line.text, line.culprit) for line in shown] == [
        (1, "1", False),
        (2, "2", False),
        (3, "3", False),
        (4, "4", True),
        (5, "5", False),
    ]
    assert excerpt("1\n", 2) == ()
    assert excerpt("a\r\nb", 2)[0].text == "a"


def test_comments_and_blanks_do_not_matter_to_a_normalised_line() -> None:
    assert normalised_line("x  =  f( a )   # why\n", 1) == "x = f( a )"
    assert normalised_line('x = "# no comment"\n', 1) == 'x = "# no comment"'
    assert normalised_line("x\n", 9) == ""


@pytest.mark.parametrize(
    ("line", "rule", "reason"),
    [
        (6, "GD101", "because"),
        (9, "GD101", "because"),
        (7, "GD301", "because"),
        (7, "GD102", None),
        (13, "GD102", DEFAULT_REASON),
        (11, "GD102", None),
        (14, "GD102", None),
    ],
)
def test_a_comment_in_the_statement_or_alone_above_it_suppresses(line: int, rule: str, reason: str | None) -> None:
    names = {"GD101": "graph-break", "GD102": "recompile-shape", "GD301": "host-sync"}
    assert suppressed(TEXT, line, rule, names[rule]) == reason


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("f()  # gpudoctor: ignore", DEFAULT_REASON),
        ("f()  # GPUDoctor: Ignore[gd101]  we know", "we know"),
        ("f()  #gpudoctor:ignore[GD101]: we know", "we know"),
        ("f()  # noqa # gpudoctor: ignore[GD101] we know", "we know"),
        ("f()  # gpudoctor: ignored", None),
        ("f()  # gpudoctor: ignore[]", None),
        ("f()  # gpudoctor: ignore[GD101", None),
        ("f()  # gpudoctor: ignore[GD1]", None),
        ("g()  # gpudoctor: ignore\nf()", None),
        ("# gpudoctor: ignore\n\nf()", None),
        ("'''\n# gpudoctor: ignore\n''', f()", None),
        ("f(  # gpudoctor: ignore\n", DEFAULT_REASON),
    ],
)
def test_only_real_comments_that_name_the_rule_count(text: str, accepted: str | None) -> None:
    line = next(n for n, content in enumerate(text.split("\n"), 1) if "f(" in content)
    assert suppressed(text, line, "GD101", "graph-break") == accepted


@given(st.text(), st.integers(-2, 20))
def test_no_text_makes_them_fail(text: str, line: int) -> None:
    enclosing_function(text, line)
    excerpt(text, line)
    normalised_line(text, line)
    suppressed(text, line, "GD101", "graph-break")
