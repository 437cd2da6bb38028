from __future__ import annotations

import pytest

from gpudoctor.engine.messages import MAX_CHARS, alike, check, render, render_line
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
        ("{{ many | join(', ', attribute='file') }} {{ many[1].values }}", "a, b 2"),
        ("{% set x = t | ns %}{% if x and t > 3 %}{{ x }}{% elif t %}b{% else %}c{% endif %}", "1.23 ms"),
        ("{{ 'a' ~ 1 ~ none }} {{ 1 + 2 }} {{ 'a' + 'b' }} {{ 7 // 2 - 1 }}", "a1None 3 ab 2"),
        ("{{ 'yes' if 'a' in ('a', 'b') and t is not none else 'no' }} {{ 2.345 | round(1) }}", "yes 2.3"),
        ("{{ 'x' if 'A b.' is like('a, b') }}{{ 'y' if 'a' is not like(none) }}", "xy"),
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
        "{{ 'x' | s }}",
        "{{ many | s }}",
        "{{ 1.5 | round(1000000000) }}",
        "{{ 5 | join }}",
        "{{ many | join(attribute='missing') }}",
        "{{ [1] + [1] }}",
        "{{ many() }}",
    ],
)
def test_what_a_message_must_not_use_is_a_rule_error(template: str) -> None:
    with pytest.raises(RuleError, match="XY001"):
        render(template, ROW, "XY001")


@pytest.mark.parametrize(
    ("template", "construct"),
    [
        ("{% for a in x %}{% for b in x %}{% for c in x %}y{% endfor %}{% endfor %}{% endfor %}", "{% for %}"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% macro %}"),
        ("{% call m() %}{% endcall %}", "{% call %}"),
        ("{% filter upper %}x{% endfilter %}", "{% filter %}"),
        ("{% include 'x' %}", "{% include %}"),
        ("{% import 'x' as x %}", "{% import %}"),
        ("{% from 'x' import y %}", "{% from … import %}"),
        ("{% extends 'x' %}", "{% extends %}"),
        ("{% block x %}{% endblock %}", "{% block %}"),
        ("{% with a = 1 %}{% endwith %}", "{% with %}"),
        ("{% set a %}x{% endset %}", "{% set %} with a body"),
        ("{% set a, b = 1, 2 %}", "{% set %} of several names"),
        ("{% set a = ['x', 'x'] %}", "a list in {% set %}"),
        ("{% autoescape true %}{% endautoescape %}", "{% autoescape %}"),
        ("{% if t %}{{ range(9) }}{% endif %}", "a call"),
        ("{{ {'a': 1} }}", "a dict"),
        ("{{ 9 ** 9 }}", "**"),
        ("x" * 5000, "5000 characters"),
        ("{% debug %}", "debug"),
        ("{{ 1 | nothing }}", "nothing"),
        ("{{ " + "(" * 1500 + "1" + ")" * 1500 + " }}", "nested too deeply"),
        ("{% if t %}" * 150 + "{% endif %}" * 150, "nest"),
    ],
)
def test_a_construct_that_could_run_or_grow_without_end_is_refused(template: str, construct: str) -> None:
    with pytest.raises(RuleError, match=r"^XY001: a text ") as error:
        check(template, "XY001")
    assert construct in str(error.value) or "indentation" in str(error.value)
    with pytest.raises(RuleError):
        render(template, {"x": "y" * 10**6, "t": 1}, "XY001")


@pytest.mark.parametrize(
    "template",
    [
        "{{ x }}",
        "{{ x ~ x }}",
        "{{ x | join(x) | join(x) | join(x) }}",
        "{{ x | sort | upper | sort | upper | sort | upper | sort | upper }}",
        "{{ many | join(x) }}",
        "{{ 2 | plural(x) }}",
        "{% set a = x ~ x %}" + "{% set a = a ~ a %}" * 100 + "{{ a }}",
        "{% set a = x + x %}" + "{% set a = a + a %}" * 100 + "{{ a }}",
        "{{ x }}" * 500,
    ],
)
def test_a_text_that_grows_is_cut(template: str) -> None:
    text = render(template, {"x": "long" * 10**5, "many": ["y"] * 10**5}, "XY001")
    assert len(text) <= MAX_CHARS
    assert text.endswith("…")


def test_a_number_that_grows_is_refused() -> None:
    with pytest.raises(RuleError, match=r"operator \*"):
        render("{% set a = 10 %}" + "{% set a = a * a %}" * 50 + "{{ a }}", {}, "XY001")


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("Call to print.", "call to `print`", True),
        ("Dynamo met a call to print here", "A call to print", True),
        ("print", "Dynamo cannot trace print()", True),
        ("Dynamo does not know how to trace logging.debug", "Dynamo does not know how to go on", True),
        ("Dynamo does not know", "Dynamo does not see", False),
        ("printed", "print", False),
        (
            "Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False.",
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
            True,
        ),
        (
            "logging.Logger methods are not supported for non-export cases.",
            "logging.Logger method not supported for non-export cases",
            True,
        ),
        ("Operator `aten.bincount`'s output shape depends on input data.", "Dynamic shape operator", False),
        ("Dynamo marked `os.getpid` as skipped.", "Attempted to call function marked as skipped", False),
        ("x", ["other", None, "X!"], True),
        ("x", [], False),
        ("", "x", False),
        ("x", "...", False),
        (None, None, False),
    ],
)
def test_texts_are_alike_when_they_say_the_same(text: str | None, other: str | list[str] | None, same: bool) -> None:
    assert alike(text, other) is same
