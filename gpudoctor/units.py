"""Numbers as people read them: times, sizes, shares and counts with their unit.

Pure functions, three significant digits, used by rule messages and by every reporter. A number and its unit are
separated by an ordinary space, groups of thousands by a narrow no-break space (U+202F), as ISO 80000-1 has it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

GROUP = "\u202f"
"""Separator of groups of three digits."""

DIGITS = 3
"""Significant digits: step times repeat to within a few per cent at best, more digits would be noise."""

_TIMES = (("ns", 1), ("µs", 10**3), ("ms", 10**6), ("s", 10**9))
_BYTES = (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40))


def format_ns(ns: float) -> str:
    """A duration in nanoseconds as "812 ns", "812 µs", "61.9 ms" or "1.24 s"; a large one as "12 345 s"."""
    return _scaled(ns, _TIMES)


def format_bytes(count: float) -> str:
    """A size in bytes in binary units: "512 B", "3.10 MiB"."""
    return _scaled(count, _BYTES)


def format_share(share: float) -> str:
    """A share (0 to 1) as a percentage: "42 %", "3.4 %" below ten, "< 0.1 %" for what would round to nothing."""
    percent = Decimal(repr(float(share))) * 100
    if percent != 0 and abs(percent) < Decimal("0.1"):
        return ("< " if percent > 0 else "> -") + "0.1 %"
    tenths = percent.quantize(Decimal("0.1"), ROUND_HALF_UP)
    if tenths == 0:
        return "0 %"
    return f"{tenths} %" if abs(tenths) < 10 else f"{percent.quantize(Decimal(1), ROUND_HALF_UP)} %"


def format_count(count: float) -> str:
    """A count with thin grouping from five digits on: "4096", "12 345"; "7.3", "1.25" for a mean."""
    if count == int(count):
        return _grouped(Decimal(int(count)))
    text = _significant(Decimal(repr(float(count))))
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_range(low: float, high: float, form: Callable[[float], str]) -> str:
    """Both ends as "2.10 to 4.31 ms", "812 µs to 1.20 ms"; ends that read alike as one number.

    Args:
        low: one end.
        high: the other.
        form: one of the functions above, whose text ends in a space and the unit.
    """
    first, last = form(low), form(high)
    if first == last:
        return last
    number, _, unit = first.rpartition(" ")
    return f"{number if last.endswith(f' {unit}') else first} to {last}"


def plural(count: float, one: str, many: str | None = None) -> str:
    """The count with its noun: "1 graph break", "3 graph breaks"; `many` defaults to `one` + "s"."""
    return f"{format_count(count)} {one if count == 1 else many or one + 's'}"


def _scaled(value: float, units: tuple[tuple[str, int], ...]) -> str:
    """The value in the largest unit in which it is at least 1 after rounding; else in the smallest."""
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))
    name, factor = next(
        ((name, factor) for name, factor in reversed(units) if _rounded(abs(exact) / factor) >= 1), units[0]
    )
    whole = factor == 1 and exact == exact.to_integral_value()
    return f"{_grouped(exact.to_integral_value()) if whole else _significant(exact / factor)} {name}"


def _rounded(value: Decimal) -> Decimal:
    """The value to `DIGITS` significant digits; whole numbers of more digits stay whole."""
    if value == 0:
        return Decimal(0)
    exponent = min(0, value.adjusted() - DIGITS + 1)
    return value.quantize(Decimal(1).scaleb(exponent), ROUND_HALF_UP)


def _significant(value: Decimal) -> str:
    rounded = _rounded(value)
    if rounded != 0:
        rounded = _rounded(rounded)  # 9.996 rounds to 10.00, which has a digit too many
    return _grouped(rounded)


def _grouped(value: Decimal) -> str:
    whole, _, fraction = f"{value:f}".partition(".")
    sign, digits = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    if len(digits) > 4:
        digits = f"{int(digits):,}".replace(",", GROUP)
    return sign + digits + (f".{fraction}" if fraction else "")
