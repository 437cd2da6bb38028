"""The page's table of what takes most of the profiled steps."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis import Diagnosis
from gpudoctor.reporters.wording import one_line, place
from gpudoctor.units import format_count, format_ns, format_share

SHOWN = 15
_NAME = 140
"""Characters of a kernel's name that are shown: template arguments go on for thousands."""


@dataclass(frozen=True, slots=True)
class WorkRow:
    """One row: its cells as text."""

    time: str
    share: str
    calls: str
    name: str
    kind: str
    where: str


def title(diagnosis: Diagnosis) -> str:
    """`Top kernels`, or on a CPU `Top operators`."""
    return "Top kernels" if on_device(diagnosis) else "Top operators"


def on_device(diagnosis: Diagnosis) -> bool:
    """Whether the budget is that of a device."""
    return diagnosis.budget is not None and diagnosis.budget.ruler == "device"


def source(diagnosis: Diagnosis) -> str:
    """What the times are."""
    if on_device(diagnosis):
        return "Time a step on the device, mean of the profiled steps."
    return "Time a step without what they call, mean of the profiled steps, under the profiler."


def rows(diagnosis: Diagnosis) -> tuple[WorkRow, ...]:
    """The longest first."""
    return tuple(
        WorkRow(
            format_ns(work.ns_per_step),
            format_share(work.share),
            format_count(work.per_step),
            one_line(work.name)[:_NAME] + ("…" if len(work.name) > _NAME else ""),
            one_line(work.kind or ""),
            place(work.where) if work.where else "",
        )
        for work in diagnosis.work[:SHOWN]
    )
