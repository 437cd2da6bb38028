from __future__ import annotations

import pytest

from gpudoctor.engine.messages import render, render_line
from gpudoctor.errors import RuleError

ROW = {"t": 1_234_567, "none": None, "many": [{"file": "a", "values": 1}, {"file": "b", "values": 2}], "share": 0.124}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ t | ns }}", "1.23 ms"),
        ("{{ 2 | us }} {{ 2 | ms }} {{ 2 | s }}", "2.00 µs 2.00 ms 2.00 s"),
        ("{{ 3250586 | bytes }} {{ share | percent }} {{ 4096 | count }}", "3.10 MiB 12 % 4096"),
        ("{{ 1 | plural('graph') }}, {{ 2 | plural('batch', 'batches') }}", "1 graph, 2 batches"),
        ("{{ none | ns }} {{ none | plural('graph') }}", "unknown unknown graphs"),
        ("{% for x in many %}{{ x.file }}{{ x.values }}{{ ', ' if not loop.last }}{% endfor %}", "a1, b2"),
        ("{{ [1, 2] | join(', ') }}{% if none %}x{% endif %}", "1, 2"),
        ("{{ t * 2 }}", "2469134"),
    ],
)
def test_values_are_shown_in_their_unit(template: str, text: str) -> None:
    assert render(template, ROW, "XY001") == text


def test_lines_are_joined() -> None:
    assert render_line("a\n  b\n", {}, "x") == "a b"


@pytest.mark.parametrize(
    "template",
    [
        "{{ missing }}",
        "{{ many[0].missing }}",
        "{{ t.__class__ }}",
        "{{ ''.join(many) }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 9 ** 999999999 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ range(3) }}",
        "{{ self }}{{ cycler }}",
        "{{ many | map }}",
        "{% include 'x' %}",
        "{% if",
        "{{ 'x' | ns }}",
    ],
)
def test_what_a_message_must_not_use_is_a_rule_error(template: str) -> None:
    with pytest.raises(RuleError, match="XY001"):
        render(template, ROW, "XY001")
