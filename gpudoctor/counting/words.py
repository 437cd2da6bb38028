"""Counts as text, with their units."""

from __future__ import annotations

from gpudoctor.diagnosis import Unit
from gpudoctor.units import format_bytes, format_count


def amount(value: int | None, unit: Unit) -> str:
    """A count with its unit; "not measured" for null."""
    if value is None:
        return "not measured"
    if unit == "bytes":
        return format_bytes(value)
    return f"{format_count(value)} FLOP" if unit == "FLOP" else format_count(value)
