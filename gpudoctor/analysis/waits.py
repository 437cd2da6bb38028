"""Waits that cost a device idle time only after they are over.

While the host waits (for a batch, for the device, for memory) the device works off what was launched before. A wait
that ends when the device has run dry leaves idle time behind it: the host then does its usual work between launches,
but without the lead that it had. Without the wait all of that would have been launched earlier by as much as the device
was busy during it. So a wait is owed that much of the idle time that follows, and never more:

- its *credit* is the device's busy time during the wait (the idle time during it is the wait's own anyway);
- idle time behind it is charged to the last wait with credit left;
- once the host is ahead of the device again the wait is over for good: later idle time has other reasons;
- a long wait for the device itself voids older credit: with more lead the host would only have waited there for longer.
  A call that found the device done (the second of two reads in a row) voids nothing: both must go to win the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.intervals import Ints, Mask, Spans, covered, split


@dataclass(frozen=True, slots=True)
class Waits:
    """Times in which the host waited, in the order of their ends.

    Attributes:
        start: begins.
        end: ends.
        device: waited for the device itself.
        until: when the host was ahead of the device again.
    """

    start: Ints
    end: Ints
    device: Mask
    until: Ints


def caught_up(ends: Ints, launched: Ints, returned: Ints, begun: Ints, lead_ns: int) -> Ints:
    """When the host was ahead of the device again after each time; the far future when it never was.

    The host is ahead when an activity begins that had been launched well before: it had waited for the device, not the
    device for it.

    Args:
        ends: the times, ends of waits.
        launched: begins of launch calls.
        returned: ends of these.
        begun: begins of the activities that they launched.
        lead_ns: how long before an activity's begin its call must have returned.
    """
    ahead = begun - returned >= lead_ns
    order = np.argsort(launched[ahead], kind="stable")
    calls = launched[ahead][order]
    never = np.iinfo(np.int64).max
    first = np.append(np.minimum.accumulate(begun[ahead][order][::-1])[::-1], never)
    return np.asarray(first[np.searchsorted(calls, ends, side="left")], dtype=np.int64)


def charge(
    waits: Waits, busy: Spans, start: Ints, end: Ints, lead_ns: int
) -> tuple[Ints, Ints, NDArray[np.intp], NDArray[np.intp]]:
    """Charges idle time to the waits before it.

    Args:
        waits: the host's waits.
        busy: times in which the device was busy.
        start: begins of the idle stretches that a wait may explain, ascending and disjoint.
        end: their ends.
        lead_ns: a wait in which the device was busy for so long is a long one.

    Returns:
        Starts and ends of pieces, the number of the stretch that each is a piece of, and the number of the wait that
        owns it (-1: none does).
    """
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(end - start)])
    begins, expiry = (_idle_before(start, end, before, times) for times in (waits.end, waits.until))
    marks, owners = _charges(waits, covered(busy, waits.start, waits.end), begins, expiry, int(before[-1]), lead_ns)
    # on an axis that counts idle time only, the stretches touch and the charges are a step function
    lo, hi, origin = split(before[:-1], before[1:], marks)
    at = np.searchsorted(marks, lo, side="right") - 1
    owner = np.where(at >= 0, owners[at], -1) if len(marks) else np.full(len(lo), -1, np.intp)
    shift = start[origin] - before[:-1][origin]
    return lo + shift, hi + shift, origin, owner


def _idle_before(start: Ints, end: Ints, before: Ints, times: Ints) -> Ints:
    """Idle time in the stretches before each time."""
    at = np.searchsorted(start, times, side="right")
    if not len(start):
        return np.zeros(len(times), np.int64)
    beyond = np.where(at > 0, np.maximum(end[at - 1] - times, 0), 0)
    return np.asarray(before[at] - beyond, dtype=np.int64)


def _charges(
    waits: Waits, credit: Ints, begins: Ints, expiry: Ints, total: int, lead_ns: int
) -> tuple[Ints, NDArray[np.intp]]:
    """Where on the axis of idle time the owner changes, and to which wait: one pass over waits, not over kernels."""
    marks: list[int] = []
    owners: list[int] = []
    left: list[tuple[int, int, int]] = []  # (wait, credit left, where it expires), the latest last
    stops = [*begins.tolist(), total][1:]
    columns = (credit.tolist(), begins.tolist(), stops, expiry.tolist(), waits.device.tolist())
    for number, (own, begin, stop, end, device) in enumerate(zip(*columns, strict=True)):
        if device and own >= lead_ns:
            left.clear()
        if own > 0:
            left.append((number, own, end))
        at = begin
        while at < stop and left:
            wait, rest, until = left.pop()
            taken = min(rest, stop - at, until - at)
            if taken <= 0:
                continue
            marks.append(at)
            owners.append(wait)
            at += taken
            if rest > taken and until > at:
                left.append((wait, rest - taken, until))
        marks.append(at)
        owners.append(-1)
    return np.array(marks, np.int64), np.array(owners, np.intp)
