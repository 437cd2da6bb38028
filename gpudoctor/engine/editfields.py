"""Reads the `edit` of a remedy, checked against what the kinds of edits declare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpudoctor.config import suggestion
from gpudoctor.engine.edits.kinds import DEFAULT_KIND, KINDS, EditValue, Key
from gpudoctor.engine.fields import FieldError, as_count, as_table, get_names, get_text, only_known
from gpudoctor.engine.rule import Edit

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def read_edit(table: Mapping[str, Any], what: str) -> Edit:
    """The edit that a table describes; `what` is the table's own path, for errors.

    Raises:
        FieldError: a kind or key that is not known, one that is missing, or a value of the wrong sort.
    """
    name = get_text(table, "kind", f"{what}.") if "kind" in table else DEFAULT_KIND
    if name not in KINDS:
        hint = suggestion(name, KINDS) or f"; the kinds are {', '.join(KINDS)}"
        raise FieldError(f"`{what}.kind` is {name!r}, which is no kind of edit{hint}")
    keys = KINDS[name].keys
    only_known(table, ("kind", "at", "every", "when", *keys), f"`{what}` (kind {name})")
    values = {key: _value(table, key, declared, what) for key, declared in keys.items()}
    if name == DEFAULT_KIND and not (values["set"] or values["drop"]):
        raise FieldError(f"`{what}` changes nothing; give `set` or `drop`")
    at, when = (get_text(table, key, f"{what}.") if key in table else None for key in ("at", "when"))
    every = table.get("every", False)
    if not isinstance(every, bool) or (every and at is None):
        raise FieldError(f"`{what}.every` must be true or false, and goes with `at`")
    return Edit(name, values, at, when, every)


def _value(table: Mapping[str, Any], key: str, declared: Key, what: str) -> EditValue:
    if key not in table:
        if declared.default is None:
            raise FieldError(f"`{what}` lacks `{key}`: {declared.doc}")
        return declared.default
    at = f"{what}."
    if declared.shape == "count":
        return as_count(table[key], f"{at}{key}")
    if declared.shape == "names":
        return get_names(table, key, at)
    if declared.shape == "dotted":
        return _dotted(table[key], f"{at}{key}")
    if declared.shape == "sources":
        return _sources(as_table(table[key], f"{at}{key}"), f"{at}{key}")
    text = get_text(table, key, at)
    if declared.choices and text not in declared.choices:
        raise FieldError(f"`{at}{key}` is {text!r}; it must be one of {', '.join(declared.choices)}")
    return text


def _dotted(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(n, str) and _DOTTED.fullmatch(n) for n in value):
        raise FieldError(f"`{what}` must be a list of dotted names, at least one")
    return tuple(value)


def _sources(table: Mapping[str, Any], what: str) -> dict[str, str]:
    if not all(isinstance(text, str) for text in table.values()):
        raise FieldError(f"`{what}` must give source text, in quotes, for each keyword")
    return dict(table)
