"""What the profiler itself adds to a step, fitted on the run: light steps against the unprofiled ones around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

NEIGHBOURS = 5  # unprofiled steps on either side of a burst: they ran when the machine was as fast as in the burst

Step = Mapping[str, Any]


def event_cost_ns(steps: Sequence[Step], events: Mapping[int, int], calibrated_ns: int | None) -> float | None:
    """Nanoseconds that a lightly profiled step takes longer for each operator in it.

    The median over the light bursts of: median light step less median of its unprofiled neighbours, over the operators
    of a step. Without neighbours, what was measured after the run.

    Args:
        steps: rows of `steps`, in order.
        events: operators by number of step.
        calibrated_ns: the cost measured on operators of gpudoctor's own, None when it was not.
    """
    fitted = [cost for burst in _bursts(steps, events) if (cost := _fitted(steps, burst, events)) is not None]
    if not fitted:
        return calibrated_ns
    return max(0.0, median(fitted))


def predicted_step_ns(steps: Sequence[Step], events: Mapping[int, int], cost_ns: float | None) -> int | None:
    """Step time without a profiler that the light steps predict: theirs less the cost of their events."""
    bursts = _bursts(steps, events)
    if cost_ns is None or not bursts:
        return None
    taken = [steps[at]["dur_ns"] - events[steps[at]["step"]] * cost_ns for burst in bursts for at in burst]
    return max(0, int(median(taken)))


def _bursts(steps: Sequence[Step], events: Mapping[int, int]) -> list[list[int]]:
    """Positions of light steps without a compile, those that follow each other together."""
    made: list[list[int]] = []
    for at, step in enumerate(steps):
        if step["observation"] != "light" or step["compile_ns"] or not events.get(step["step"]):
            continue
        if made and made[-1][-1] == at - 1:
            made[-1].append(at)
        else:
            made.append([at])
    return made


def _fitted(steps: Sequence[Step], burst: Sequence[int], events: Mapping[int, int]) -> float | None:
    before = [step["dur_ns"] for step in steps[: burst[0]] if _steady(step)][-NEIGHBOURS:]
    after = [step["dur_ns"] for step in steps[burst[-1] + 1 :] if _steady(step)][:NEIGHBOURS]
    if not before and not after:
        return None
    longer = median(steps[at]["dur_ns"] for at in burst) - median([*before, *after])
    return float(longer / median(events[steps[at]["step"]] for at in burst))


def _steady(step: Step) -> bool:
    return step["observation"] == "bare" and not step["warmup"] and not step["compile_ns"]
