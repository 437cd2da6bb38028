"""The registry of formats, and the two that machines read."""

from __future__ import annotations

import pytest

from gpudoctor.diagnosis import from_json
from gpudoctor.errors import UsageError
from gpudoctor.reporters import FORMATS, render
from gpudoctor.reporters import json as json_format

from . import diagnoses


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("sample", diagnoses.ALL)
def test_every_format_renders_every_diagnosis_as_encodable_text(name: str, sample: str) -> None:
    text = render(name, diagnoses.ALL[sample]())
    text.encode("utf-8")
    assert text.endswith("\n") or (name == "concise" and not text)


def test_an_unknown_format_is_a_usage_error_that_lists_them() -> None:
    with pytest.raises(UsageError, match="full, concise, json, html"):
        render("pdf", diagnoses.empty())


def test_concise_is_one_line_a_finding_that_counts() -> None:
    lines = render("concise", diagnoses.realistic()).splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("train.py:17: error GD101 graph-break: Dynamo breaks `Net.forward`")
    assert lines[0].endswith("(≤ 1.61 ms/step, 31 % of the step, estimated)")
    assert lines[3].endswith("was compiled again, 1.24 s.")
    assert lines[5].endswith("is read once a step. [explained by GD101 train.py:17]")


def test_concise_stays_one_line_whatever_the_names_hold() -> None:
    assert len(render("concise", diagnoses.hostile()).split("\n")) == 4 + 1
    assert render("concise", diagnoses.hostile()).splitlines()[2] == "warning GD102 bare: message"


def test_concise_is_empty_without_findings() -> None:
    assert render("concise", diagnoses.clean()) == ""


@pytest.mark.parametrize("sample", ["realistic", "clean", "empty", "many"])
def test_json_reads_back_as_the_same_diagnosis(sample: str) -> None:
    diagnosis = diagnoses.ALL[sample]()
    assert from_json(render("json", diagnosis)) == diagnosis


def test_json_writes_undecodable_file_names_as_escapes() -> None:
    text = json_format.render(diagnoses.hostile())
    assert "\\\\udcff" in text
    assert len(from_json(text).findings) == 4
