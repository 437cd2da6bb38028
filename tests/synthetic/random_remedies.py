"""Remedies of random programs: each takes a program's steps and gives those of the repaired one.

What stays keeps its noise. An operator that is taken out leaves the host time before it: that is Python's or the
engine's, and the script still has the lines around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tests.synthetic.random_device import Work
from tests.synthetic.random_host import Call, Operator
from tests.synthetic.random_parts import COPIES
from tests.synthetic.random_recipe import US

Steps = list[list[Operator]]

PINNED_NAME = "Memcpy HtoD (Pinned -> Device)"


@dataclass(frozen=True, slots=True)
class Remedied:
    """A repaired program.

    Attributes:
        steps: its steps.
        moved: keys of calls that are made at another place.
        no_loader: batches are there when they are asked for.
    """

    steps: Steps
    moved: frozenset[int] = frozenset()
    no_loader: bool = False


def gone(operator: Operator) -> Operator:
    """What is left of an operator that was taken out: the host time before it."""
    return replace(operator, names=(), role="gone", calls=(), enter_ns=0, leave_ns=0, inside="", batch=-1)


def _each(steps: Steps, change: Callable[[Operator], Operator]) -> Steps:
    return [[change(operator) for operator in step] for step in steps]


def _without(role: str) -> Callable[[Steps], Remedied]:
    return lambda steps: Remedied(_each(steps, lambda one: gone(one) if one.role == role else one))


def _with_work(operator: Operator, change: Callable[[Work], Work]) -> Operator:
    if not any(change(work) is not work for call in operator.calls for work in call.works):
        return operator
    calls = tuple(
        replace(call, works=tuple(map(change, call.works))) if call.works else call for call in operator.calls
    )
    return replace(operator, calls=calls)


def _scale_gemm(steps: Steps) -> Remedied:
    def half(work: Work) -> Work:
        return replace(work, dur_ns=work.dur_ns // 2) if work.matrix else work

    return Remedied(_each(steps, lambda one: _with_work(one, half)))


def _align_ranks(steps: Steps) -> Remedied:
    def on_time(work: Work) -> Work:
        return replace(work, late_ns=0) if work.late_ns else work

    return Remedied(_each(steps, lambda one: _with_work(one, on_time)))


def _zero_launch(steps: Steps) -> Remedied:
    """Launch calls, and the operators that make them, cost the host nothing; those around them do."""

    def free(operator: Operator) -> Operator:
        if not any("Launch" in call.api for call in operator.calls):
            return operator
        calls = tuple(replace(call, cost_ns=0, between_ns=0) for call in operator.calls)
        around, levels = len(operator.names) - 1, max(1, len(operator.names))
        enter, leave = operator.enter_ns * around // levels, operator.leave_ns * around // levels
        return replace(operator, calls=calls, enter_ns=enter, leave_ns=leave)

    return Remedied(_each(steps, free))


def _no_loader_wait(steps: Steps) -> Remedied:
    def empty(operator: Operator) -> Operator:
        return replace(operator, batch=-1, enter_ns=0, leave_ns=0) if operator.role == "loader" else operator

    return Remedied(_each(steps, empty), no_loader=True)


def _merge_small(steps: Steps) -> Remedied:
    return Remedied([_merged(step) for step in steps])


def _merged(step: list[Operator]) -> list[Operator]:
    """One kernel instead of the small ones, with half of their time: it reads and writes what they pass on but once."""
    small = [one for one in step if one.role == "small"]
    if len(small) < 2:
        return step
    first = small[0]
    call = first.calls[0]
    dur_ns = sum(one.calls[0].works[0].dur_ns for one in small) // 2
    one_kernel = replace(call, works=(replace(call.works[0], dur_ns=dur_ns),))
    merged = replace(first, calls=(one_kernel,))
    return [merged if one is first else gone(one) if one.role == "small" else one for one in step]


def _overlap_copies(steps: Steps) -> Remedied:
    """The next step's batch is copied from pinned memory while this one computes; the first has been copied before.

    A copy lasts as long as before. From pinned memory it would be faster, which a recording of the other cannot tell.
    """
    return Remedied([[_overlapped(one, number) for one in step] for number, step in enumerate(steps)])


def _overlapped(operator: Operator, step: int) -> Operator:
    if operator.role != "batch":
        return operator
    copy = operator.calls[0]
    works = tuple(replace(work, stream=COPIES, name=PINNED_NAME) for work in copy.works)
    aside = replace(copy, works=works, stream=COPIES, waits="")
    record = Call(-copy.key, "cudaEventRecord", 1 * US, mark=f"batch{step + 1}", stream=COPIES)
    wait = Call(-copy.key - 1, "cudaStreamWaitEvent", 1 * US, mark=f"batch{step}")
    return replace(operator, calls=(wait, aside, record))


def _overlap_comm(steps: Steps) -> Remedied:
    """Compute waits for the reductions before the optimizer, not behind each of them."""
    moved = {one.key for step in steps for one in step if one.role == "reduced"}
    calls = frozenset(call.key for step in steps for one in step if one.key in moved for call in one.calls)
    made = [_later(step) for step in steps]
    return Remedied(steps, frozenset()) if made == steps else Remedied(made, calls)


def _later(step: list[Operator]) -> list[Operator]:
    waits = [one for one in step if one.role == "reduced"]
    rest = [one for one in step if one.role != "reduced"]
    last = max((at for at, one in enumerate(rest) if one.backward), default=0)
    return rest[: last + 1] + waits + rest[last + 1 :]


REMEDIES: dict[str, Callable[[Steps], Remedied]] = {
    "drop_sync": _without("item"),
    "drop_explicit_sync": _without("synchronize"),
    "drop_h2d": _without("batch"),
    "overlap_h2d": _overlap_copies,
    "no_loader_wait": _no_loader_wait,
    "merge_small": _merge_small,
    "scale_gemm": _scale_gemm,
    "zero_launch": _zero_launch,
    "drop_kernels": _without("norm"),
    "align_ranks": _align_ranks,
    "overlap_comm": _overlap_comm,
    "drop_memory": _without("memory"),
}


def changes(before: Steps, after: Steps) -> bool:
    """Whether a remedy finds anything to do in a program."""
    return any(one is not other for a, b in zip(before, after, strict=True) for one, other in _pairs(a, b))


def _pairs(a: Iterable[Operator], b: Iterable[Operator]) -> Iterable[tuple[Operator, Operator]]:
    return zip(a, b, strict=True)
