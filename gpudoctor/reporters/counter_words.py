"""Counters in words: title, count with its unit, and whether it repeats."""

from __future__ import annotations

from gpudoctor.counting import amount, kind
from gpudoctor.diagnosis import Counter, Diagnosis
from gpudoctor.reporters.wording import one_line


def rows(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    """Title and amount of every counter, in their order."""
    return tuple((title(name), _amount(diagnosis, name)) for name in diagnosis.counters)


def title(name: str) -> str:
    """What a counter counts."""
    known = kind(name)
    return known.title if known else one_line(name.replace("_", " "))


def _amount(diagnosis: Diagnosis, name: str) -> str:
    known, value = kind(name), diagnosis.counters[name]
    counter = diagnosis.counted.get(name) or Counter(value, known.unit if known else "count")
    said = amount(value, counter.unit)
    if counter.repeats or counter.least is None or counter.most is None:
        return said
    between = f"{amount(counter.least, counter.unit)} to {amount(counter.most, counter.unit)}"
    return f"{said}; varies from step to step, {between}"
