"""Checked readers for the TOML in a rule file: a value of the wrong kind is an error that names its key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.config import suggestion

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


class FieldError(ValueError):
    """What is wrong with the file, and what to do."""


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The TOML as a dict; `what` names it in errors."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, numbers of thousands of digits, deep nesting
        raise FieldError(f"{what} is not TOML: {error}") from None


def only_known(table: Mapping[str, Any], keys: Sequence[str], what: str) -> None:
    """Refuses keys that are not known, with the nearest known one."""
    for key in table:
        if key not in keys:
            raise FieldError(f"{what} has no key {key!r}{suggestion(key, keys) or '; the keys are ' + ', '.join(keys)}")


def get_text(table: Mapping[str, Any], key: str, what: str = "") -> str:
    """A text that is not empty; `what` is the path in front of the key."""
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise FieldError(f"`{what}{key}` must be a text that is not empty")
    return value.strip()


def get_choice(table: Mapping[str, Any], key: str, allowed: Sequence[str], *default: Any) -> Any:
    """One of the allowed values; without a default the key must be there."""
    value = table.get(key, *default) if default else table[key]
    if value not in (*allowed, *default):
        raise FieldError(f"`{key}` is {value!r}; it must be one of {', '.join(allowed)}")
    return value


def get_names(table: Mapping[str, Any], key: str, what: str = "", least: int = 0) -> tuple[str, ...]:
    """A list of identifiers, each once."""
    value = table.get(key, [])
    names = isinstance(value, list) and all(isinstance(name, str) and _IDENTIFIER.fullmatch(name) for name in value)
    if not names or len(set(value)) != len(value) or len(value) < least:
        raise FieldError(f"`{what}{key}` must be a list of {'at least one name' if least else 'names'}, each once")
    return tuple(value)


def as_table(value: object, what: str) -> Mapping[str, Any]:
    """The value, when it is a table."""
    if not isinstance(value, dict):
        raise FieldError(f"`{what}` must be a table")
    return value


def as_count(value: object, what: str) -> int:
    """The value, when it is a whole number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FieldError(f"`{what}` must be a whole number, 0 or more")
    return value
