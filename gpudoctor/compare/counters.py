"""Counters of two revisions: which rose, which fell, and which say nothing because they do not repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudoctor.compare.lines import changes
from gpudoctor.compare.model import CounterChange, CounterVerdict
from gpudoctor.counting import COUNTERS, Kind, kind
from gpudoctor.diagnosis import Counter, Diagnosis

VARIES_INSIDE = "it differs between the profiled steps of one run"
VARIES_OUTSIDE = "it differs between runs of one revision"


def counter_changes(
    base: Sequence[Diagnosis], head: Sequence[Diagnosis], tolerance: Mapping[str, float]
) -> tuple[CounterChange, ...]:
    """Every counter that either revision has, in the order in which they are shown.

    Args:
        base: diagnoses of the base's runs.
        head: of the head's.
        tolerance: by how much a counter may rise, as a share of its base value (0.05 for 5 %); others may not at all.
    """
    names = dict.fromkeys(name for diagnosis in (*base, *head) for name in diagnosis.counted)
    ordered = sorted(names, key=lambda name: list(COUNTERS).index(name) if name in COUNTERS else len(COUNTERS))
    return tuple(
        _change(name, [_counter(one, name) for one in base], [_counter(one, name) for one in head], tolerance)
        for name in ordered
    )


def _counter(diagnosis: Diagnosis, name: str) -> Counter:
    if name in diagnosis.counted:
        return diagnosis.counted[name]
    made = kind(name) or Kind(name)
    of_matrices = made.unit == "FLOP" and any(
        (kind(other) or Kind(other)).unit == "FLOP" for other in diagnosis.counted
    )
    if of_matrices:  # work in this dtype does not occur, and that in others was counted
        return Counter(0, made.unit, made.scope, least=0, most=0)
    return Counter(None, made.unit, made.scope, unknown="this recording has no such counter")


def _change(
    name: str, base: Sequence[Counter], head: Sequence[Counter], tolerance: Mapping[str, float]
) -> CounterChange:
    what = kind(name) or Kind(name, base[0].unit, base[0].scope, gates=False)
    verdict, reason = _verdict(what, base, head, tolerance.get(name, 0.0))
    differs = verdict not in ("same", "not measured")
    return CounterChange(
        name=name,
        title=what.title,
        unit=what.unit,
        scope=what.scope,
        base=base[0].value,
        head=head[0].value,
        verdict=verdict,
        reason=reason,
        lines=changes(base[0].lines, head[0].lines) if differs else (),
    )


def _verdict(
    what: Kind, base: Sequence[Counter], head: Sequence[Counter], tolerance: float
) -> tuple[CounterVerdict, str | None]:
    before, after = base[0].value, head[0].value
    unknown = next((one for one in (*base, *head) if one.value is None), None)
    if unknown is not None or before is None or after is None:
        return "not measured", unknown.unknown if unknown else None
    if (varies := _varies(base, head)) is not None:
        return "unstable", varies
    if before == after:
        return "same", None
    if not what.gates:
        return "changed", "more of it is neither better nor worse"
    if before < after <= before * (1 + tolerance):
        return "changed", f"within the tolerance of {tolerance:.0%}"
    return ("better" if after < before else "worse"), None


def _varies(base: Sequence[Counter], head: Sequence[Counter]) -> str | None:
    """Why a counter says nothing about a change of the code; None when it repeats."""
    if not all(one.repeats for one in (*base, *head)):
        return VARIES_INSIDE
    outside = len({one.value for one in base}) > 1 or len({one.value for one in head}) > 1
    return VARIES_OUTSIDE if outside else None
