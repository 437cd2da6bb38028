"""Times of a trace as exact integers: microseconds in decimal text → nanoseconds, without a float in between.

Traces write microseconds since 1970 with three decimals; float64 holds those to a quarter of a microsecond only.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

MISSING = np.iinfo(np.int64).min
"""Stands for an integer that the trace does not give."""

_MAX_DIGITS = 16  # digits before the point, the first below 9, that cannot overflow int64 nanoseconds
_DECIMALS = 3  # nanoseconds
_LIMIT = 2**63 - 1
_TEXT_BYTES = 32  # a longer text is no time as any tool writes it; it goes the slow way
_ZERO, _NINE, _POINT, _MINUS = b"09.-"


def nanoseconds(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """Nanoseconds of times written in microseconds; `MISSING` where a text is no number.

    Digits after the third decimal are rounded to the nearest nanosecond, ties to even.
    """
    count = len(texts)
    if not count:
        return np.empty(0, np.int64)
    fixed = np.array(texts, dtype=np.bytes_)
    if fixed.dtype.itemsize > _TEXT_BYTES:
        return np.fromiter(map(exact, texts), np.int64, count)
    width = fixed.dtype.itemsize
    digits = fixed.view(np.uint8).reshape(count, width)
    whole = np.zeros(count, np.int64)
    after = np.zeros(count, np.int8)  # decimals seen; -1 before the point
    after -= 1
    lengths = np.zeros(count, np.int8)
    odd = np.zeros(count, bool)
    negative = digits[:, 0] == _MINUS
    for column in range(width):
        char = digits[:, column]
        is_digit = (char >= _ZERO) & (char <= _NINE)
        is_point = char == _POINT
        used = is_digit & (after < _DECIMALS)
        whole = np.where(used, whole * 10 + (char.astype(np.int64) - _ZERO), whole)
        lengths += used
        odd |= is_digit & ~used & (char != _ZERO)  # a fourth decimal: rounds
        after += is_digit & (after >= 0)
        odd |= is_point & (after >= 0)
        after = np.where(is_point, np.int8(0), after)
        odd |= ~(is_digit | is_point | (char == 0)) & ~(negative & (column == 0))
    decimals = np.clip(after, 0, _DECIMALS).astype(np.int64)
    before = lengths - decimals
    odd |= (lengths == 0) | (before > _MAX_DIGITS) | ((before == _MAX_DIGITS) & ((digits[:, 0] == _NINE) | negative))
    made: NDArray[np.int64] = np.where(negative, -whole, whole) * 10 ** (_DECIMALS - decimals)
    for row in np.flatnonzero(odd).tolist():
        made[row] = exact(texts[row])
    return made


def exact(text: bytes) -> int:
    """As `nanoseconds`, for one text of any form: an exponent, quotes around it, many digits."""
    try:
        if b"_" in text:  # Python reads 1_0 as ten
            return MISSING
        value = Decimal(text.decode("ascii").strip().strip('"').strip())
        if not value.is_finite() or value.adjusted() > 18:  # more digits than int64 has
            return MISSING
        made = int((value * 1000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, UnicodeDecodeError):
        return MISSING
    return made if abs(made) <= _LIMIT else MISSING


def integers(values: Sequence[object]) -> NDArray[np.int64]:
    """Integers of any JSON values; `MISSING` for what is none or does not fit."""
    try:
        made = np.array(values)
    except (ValueError, OverflowError):
        made = np.empty(0, object)
    if made.dtype == np.int64:
        return made
    return np.fromiter(map(integer, values), np.int64, len(values))


def integer(value: object) -> int:
    """One integer, from a number or its text; `MISSING` when it is none or does not fit into 64 bits."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        try:
            value = MISSING if "_" in value else int(value, 0)
        except ValueError:
            return MISSING
    if isinstance(value, float):
        if not value.is_integer():
            return MISSING
        value = int(value)
    if not isinstance(value, int):
        return MISSING
    return value if abs(value) <= _LIMIT else MISSING


def floats(values: Sequence[object]) -> NDArray[np.float64]:
    """Floats of any JSON values; NaN for what is none."""
    return np.fromiter(
        (float(value) if isinstance(value, int | float) and value != MISSING else np.nan for value in values),
        np.float64,
        len(values),
    )
