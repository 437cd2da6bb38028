"""How a saving reads: its time as a bound, a model's number or a range, its share, its grade, and its other units."""

from __future__ import annotations

from gpudoctor.diagnosis import Saving
from gpudoctor.units import format_bytes, format_ns, format_range, format_share

_MATERIAL = 0.1
"""Share of a saving by which what it adds to others must differ from it to be worth saying: the replay itself is off by
a few per cent."""


def amount(saving: Saving) -> str:
    """What is saved, each in its unit: `≤ 1.61 ms/step`, `2.10 to 4.31 ms/step`, `1.20 GiB of memory`."""
    parts = [time(saving)] if saving.of_time else []
    if saving.memory_bytes is not None:
        parts.append(f"{_sign(saving)}{format_bytes(saving.memory_bytes)} of memory")
    if saving.compile_ns is not None:
        parts.append(f"{_sign(saving)}{format_ns(saving.compile_ns)} of compiling")
    return ", ".join(parts)


def time(saving: Saving) -> str:
    """`≤ 1.61 ms/step`, or `≈` where a model says so; only what a trial measured stands without a sign.

    A range names its most itself, so a bound's sign is left out there; `≤` is a range that begins at nothing.
    """
    low, high = _ends(saving)
    text = format_range(low, high, format_ns)
    if text == format_ns(high):
        return f"{_sign(saving)}{text}/step"
    if not low:
        return f"≤ {format_ns(high)}/step"
    return f"{'' if saving.is_bound else _sign(saving)}{text}/step"


def share(saving: Saving) -> str:
    """`33 % of the step`, `10 to 20 % of the step`; empty when there is no time to be a share.

    Time that compiling adds is a share of the step with it.
    """
    if not saving.of_time or not saving.ns_per_step:
        return ""
    low, high = (min(1.0, saving.share * ns / saving.ns_per_step) for ns in _ends(saving))
    compiling = " with its compiling" if saving.of_compiling else ""
    text = format_range(low, high, format_share) if low else format_share(high)
    return f"{text} of the step{compiling}"


def grade(saving: Saving) -> str:
    """How sure the number is, in a word."""
    kind = "upper bound" if saving.is_bound else "by a model"
    return saving.grade if saving.grade == "measured" else f"{saving.grade} ({kind})"


def addition(saving: Saving) -> str:
    """What of it is left beside other findings, where that differs: `1.20 ms of it on top of the findings above`."""
    adds, alone = saving.adds_ns, saving.ns_per_step
    if adds is None or abs(adds - alone) <= _MATERIAL * alone:
        return ""
    if adds > alone:
        return f"{format_ns(adds)} once the findings above are fixed"
    return f"{format_ns(adds) if adds else 'nothing'} of it on top of the findings above"


def sentence(saving: Saving) -> str:
    """All of the above behind the amount: `20 % of the step, simulated (upper bound); 1.20 ms of it on top of …`."""
    words = ", ".join(filter(None, (share(saving), grade(saving))))
    return "; ".join(filter(None, (words, addition(saving))))


def _ends(saving: Saving) -> tuple[int, int]:
    low = saving.ns_per_step if saving.low_ns is None else saving.low_ns
    high = saving.ns_per_step if saving.high_ns is None else saving.high_ns
    return low, high


def _sign(saving: Saving) -> str:
    return "" if saving.grade == "measured" else "≤ " if saving.is_bound else "≈ "
