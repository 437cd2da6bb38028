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

_SOURCE_KEYS = frozenset({"set", "statement", "to"})
"""Keys whose texts become source text."""

_NUMBER = r"[0-9]{1,9}"
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,99}(?:\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,9}"


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
    target = aimed(edit, places)
    if target is None:
        return None
    file, line, also = target
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
    return diff, Change(edit.kind, file, line, values, digest(sources[file]), also)


def aimed(edit: Edit, places: tuple[Location | None, ...]) -> tuple[str, int, tuple[int, ...]] | None:
    """The file, the line and further lines that an edit is about; None where they are not known for certain.

    Args:
        edit: what the rule declares.
        places: the finding's own place, and its other ones.
    """
    found = [place for place in places if place and (edit.at is None or place.role == edit.at)]
    found = [place for place in places[:1] if place] if edit.at is None else found if edit.every else found[:1]
    if not found or len({place.file for place in found}) != 1 or any(place.precision != "call" for place in found):
        return None
    line, *also = dict.fromkeys(place.line for place in found)
    return found[0].file, line, tuple(also)


def refilled(edit: Edit, stored: Mapping[str, EditValue]) -> dict[str, EditValue] | None:
    """The values of an edit made again of the rule; of a stored change only what columns filled in is taken.

    That must look like what a column gives: a whole number, and where it becomes no source text a dotted name as well.
    None where the stored values are not those of this edit.
    """
    if stored.keys() != edit.values.keys():
        return None
    values: dict[str, EditValue] = {}
    for key, declared in edit.values.items():
        value = _refilled(declared, stored[key], source=key in _SOURCE_KEYS)
        if value is None:
            return None
        values[key] = value
    return values


def _refilled(declared: EditValue, given: EditValue, source: bool) -> EditValue | None:
    """One value of an edit, made again; None where the given one is another."""
    if isinstance(declared, dict) and isinstance(given, dict):
        same = given.keys() == declared.keys()
        fits = same and all(_fits(text, given[name], source) for name, text in declared.items())
        return {name: given[name] for name in declared} if fits else None
    if isinstance(declared, str) and isinstance(given, str):
        return given if _fits(declared, given, source) else None
    return declared if given == declared else None


def _fits(template: str, text: str, source: bool) -> bool:
    """Whether a text is what the template can become."""
    slot = _NUMBER if source else rf"(?:{_NUMBER}|{_NAME})"
    literals = re.split(r"\{\{.*?\}\}|\{%.*?%\}", " ".join(template.split()))
    return "{%" not in template and re.fullmatch(slot.join(map(re.escape, literals)), text) is not None


def digest(text: str) -> str:
    """What tells whether a file is still the one that was recorded: the SHA-256 of its UTF-8 text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _filled(value: EditValue, row: Mapping[str, Any], where: str) -> EditValue:
    if isinstance(value, str):
        return render_line(value, row, where)
    if isinstance(value, dict):
        return {name: render_line(text, row, where) for name, text in value.items()}
    return value
