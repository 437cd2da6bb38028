"""The terminal report: its width, its words, and what it does with strings that are not words."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from gpudoctor.reporters import console

from . import diagnoses

WIDTHS = (24, 40, 60, 80)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class AsciiFile(io.StringIO):
    encoding = "ascii"


@pytest.mark.parametrize("name", diagnoses.ALL)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    text = console.render(diagnoses.ALL[name](), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_a_wide_terminal_still_gets_eighty_columns() -> None:
    text = console.render(diagnoses.realistic(), width=200)
    assert max(map(len, text.splitlines())) <= console.WIDTH


def test_colour_only_paints_the_same_text() -> None:
    plain = console.render(diagnoses.realistic())
    painted = console.render(diagnoses.realistic(), color=True)
    assert "\x1b[" in painted
    assert ANSI.sub("", painted) == plain
    assert "\x1b" not in plain


def test_the_parts_come_in_order() -> None:
    text = console.render(diagnoses.realistic())
    parts = [
        "gpudoctor  train.py",
        "A step takes 5.12 ms.",
        "Step time",
        "Where the time goes",
        "note: ",
        "error GD101 train.py:17",
        "also info GD301 train.py:17",
        "warning GD601",
        "info GD301 train.py:32",
        "1 error, 3 warnings, 2 info · 1 accepted · 5 passed · 5 not measured",
        "accepted  GD401",
        "not measured  GD201",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_finding_says_severity_place_claim_worth_and_fix() -> None:
    text = console.render(diagnoses.realistic())
    assert "error GD101 train.py:17  torch.compile breaks the graph inside the step" in text
    assert "worth ≤ 1.61 ms/step, 31 % of the step, estimated (upper bound)" in text
    assert "+ h = torch.where(h.mean() > 0, self.fc2(h), h)" in text


def test_rules_that_miss_the_same_thing_share_a_line() -> None:
    text = console.render(diagnoses.realistic())
    assert "not measured  GD201 GD202 GD302 GD303: this run has no GPU activity" in text
    assert text.count("this run has no GPU activity") == 1


def test_a_number_is_not_parted_from_its_unit() -> None:
    for width in range(24, 81):
        text = console.render(diagnoses.realistic(), width=width)
        assert not re.search(r"\d\n\s*(%|ms|µs|ns)\b", text)


def test_what_was_not_measured_is_not_a_zero() -> None:
    text = console.render(diagnoses.empty())
    assert text.count("not measured") >= 4
    assert "0 ns" not in text
    assert "Inconclusive: no training step was seen." in text
    assert "No rule could be judged" in text


def test_a_clean_run_says_on_how_many_rules() -> None:
    assert "Nothing found on the 1 rule judged." in console.render(diagnoses.clean())


def test_strings_of_the_run_are_neither_markup_nor_control_codes() -> None:
    text = console.render(diagnoses.hostile())
    assert "[red]bold[/red]" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", text)
    assert "\\x1b[31m" in text
    assert "\\u202egnp.exe" in text
    text.encode("utf-8")


def test_hundreds_of_findings_stay_a_page() -> None:
    text = console.render(diagnoses.many())
    assert "… and 460 more findings; all of them are in the report" in text
    assert len(text.splitlines()) < 150


def test_a_long_diff_is_cut_and_says_so() -> None:
    base = diagnoses.graph_break()
    assert base.remedy is not None
    remedy = replace(base.remedy, diff="--- a\n+++ b\n@@ -1 +1,20 @@\n" + "+line\n" * 20)
    finding = replace(base, remedy=remedy)
    text = console.render(replace(diagnoses.realistic(), findings=(finding,)))
    assert "… 12 more lines in the report" in text


def test_a_terminal_gets_colour_and_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "50")
    file = Terminal()
    console.print_report(diagnoses.realistic(), file)
    assert "\x1b[" in file.getvalue()
    assert max(len(line) for line in ANSI.sub("", file.getvalue()).splitlines()) <= 50


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = Terminal()
    console.print_report(diagnoses.realistic(), file)
    assert "\x1b" not in file.getvalue()


def test_a_file_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    console.print_report(diagnoses.realistic(), file)
    assert file.getvalue() == console.render(diagnoses.realistic())
    assert "\x1b" not in file.getvalue()


def test_an_ascii_terminal_gets_ascii() -> None:
    file = AsciiFile()
    console.print_report(diagnoses.hostile(), file)
    file.getvalue().encode("ascii")
    realistic = AsciiFile()
    console.print_report(diagnoses.realistic(), realistic)
    assert "worth <= 1.61 ms/step" in realistic.getvalue()
    assert "?" not in realistic.getvalue()
