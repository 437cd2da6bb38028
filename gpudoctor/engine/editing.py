"""From the edit that a rule declares to the change of the user's file that a finding proposes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.diagnosis import Change, Location
from gpudoctor.engine.edits.kinds import EditValue
from gpudoctor.engine.messages import render_line
from gpudoctor.engine.remedy import make_diff
from gpudoctor.engine.rule import Edit
from gpudoctor.errors import RuleError

_COLUMN = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)")


def templates(edit: Edit) -> Iterator[tuple[str, str]]:
    """The texts of an edit that may use a row's columns, with their keys."""
    for key, value in edit.values.items():
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, dict):
            for name, text in value.items():
                yield f"{key}.{name}", text


def propose(
    edit: Edit, row: Mapping[str, Any], sources: Mapping[str, str], places: tuple[Location | None, ...], where: str
) -> tuple[str, Change] | None:
    """The diff of an edit and what it takes to make it again; None where the change is not certain.

    Args:
        edit: what the rule declares.
        row: the columns of the finding.
        sources: text of the user's files by path.
        places: the finding's own place, and its other ones.
        where: the rule, for errors.
    """
    found = [place for place in places if place and (edit.at is None or place.role == edit.at)]
    found = [place for place in places[:1] if place] if edit.at is None else found if edit.every else found[:1]
    if not found or len({place.file for place in found}) != 1 or any(place.precision != "call" for place in found):
        return None
    file, (line, *also) = found[0].file, dict.fromkeys(place.line for place in found)
    if file not in sources:
        return None
    if edit.when is not None and edit.when not in row:
        raise RuleError(f"{where}: an edit's `when` names column {edit.when!r}, which the query does not give")
    if edit.when is not None and not row[edit.when]:
        return None
    if any(row.get(name) is None for _, text in templates(edit) for name in _COLUMN.findall(text)):
        return None  # a value that is unknown would become a word in the user's code
    values = {key: _filled(value, row, where) for key, value in edit.values.items()}
    diff = make_diff(edit.kind, values, file, sources[file], line, *also)
    if diff is None:
        return None
    return diff, Change(edit.kind, file, line, values, digest(sources[file]), tuple(also))


def digest(text: str) -> str:
    """What tells whether a file is still the one that was recorded: the SHA-256 of its UTF-8 text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _filled(value: EditValue, row: Mapping[str, Any], where: str) -> EditValue:
    if isinstance(value, str):
        return render_line(value, row, where)
    if isinstance(value, dict):
        return {name: render_line(text, row, where) for name, text in value.items()}
    return value
