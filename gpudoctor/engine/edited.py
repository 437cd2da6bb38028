"""What a row says of the edit that prices it: the events, and how much of them remains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.errors import RuleError

_MAX_ID = 2**63 - 1
"""Ids are 64-bit integers: a larger one is none."""


def events_of(row: Mapping[str, Any], where: str) -> list[int]:
    """The ids in the column `events`, without nulls; empty where the row has none.

    Args:
        row: a row of a rule's query.
        where: what a message begins with.

    Raises:
        RuleError: the column is no list of whole numbers.
    """
    found = row.get("events")
    if found is None:
        return []
    if not isinstance(found, list) or not all(each is None or _whole(each) for each in found):
        raise RuleError(f"{where}: column events is {found!r:.60}; it must be a list of ids, which are whole numbers")
    return [int(each) for each in found if each is not None and 0 <= each <= _MAX_ID]


def remains_of(row: Mapping[str, Any], where: str) -> float | None:
    """The share in the column `remains`, 0 to 1; None where the row has none.

    Raises:
        RuleError: the column is no number.
    """
    found = row.get("remains")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise RuleError(f"{where}: column remains is {found!r:.60}; it must be a share, 0 to 1, or null")
    return min(1.0, max(0.0, float(found)))


def _whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)
