"""What the tests of all kinds of edits share: an edit as a rule file has it, and the promise that every edit keeps."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from typing import Any

import pytest

from gpudoctor.engine.editfields import read_edit
from gpudoctor.engine.edits import NotCertainError, apply_edit
from gpudoctor.fix import moved


@dataclass(frozen=True)
class Case:
    """A text, the line that the edit is about, and the text that it must give; None: no certain change."""

    name: str
    before: str
    line: int
    after: str | None = None


def edit(table: dict[str, Any], text: str, line: int) -> str:
    """The text after the edit that a rule file's table describes."""
    declared = read_edit(table, "edit")
    return apply_edit(declared.kind, declared.values, text, line)


def check(table: dict[str, Any], case: Case) -> None:
    """The edit gives what the case says, also with other line ends, with a byte order mark, and when made again."""
    if case.after is None:
        with pytest.raises(NotCertainError):
            edit(table, case.before, case.line)
        return
    assert edit(table, case.before, case.line) == case.after
    dos = edit(table, case.before.replace("\n", "\r\n"), case.line)
    assert dos == case.after.replace("\n", "\r\n")
    assert edit(table, "\ufeff" + case.before, case.line) == "\ufeff" + case.after
    bare = edit(table, case.before.rstrip("\n"), case.line)
    assert bare.rstrip("\n") == case.after.rstrip("\n")


def keeps_its_promise(table: dict[str, Any], text: str, line: int) -> None:
    """Whatever the text: no certain change, or valid Python in which the lines that stay are what they were."""
    try:
        after = edit(table, text, line)
    except NotCertainError:
        return
    ast.parse(after.removeprefix("\ufeff"))
    place = moved(text, after, line)
    again = edit_or_none(table, after, place) if place else None
    assert again is None or again == after or table.get("kind") == "delete"
    old, new = text.split("\n"), after.split("\n")
    removed = [row for row in difflib.ndiff(old, new) if row.startswith("- ")]
    assert len(removed) <= max(12, len(old) // 2)


def edit_or_none(table: dict[str, Any], text: str, line: int) -> str | None:
    """The text after the edit, or None."""
    try:
        return edit(table, text, line)
    except NotCertainError:
        return None


def ids(cases: list[Case]) -> list[str]:
    """Names of cases for pytest."""
    return [case.name for case in cases]
