"""Which device activities nothing hides: communication without computing, copies without either.

Computing is every kernel that is not communication, and memsets. A nanosecond in which several copies (or several
collectives) run exposed at once belongs to the one that began first, so that what the activities of a device own adds
up to the union.

Exposed is not yet in the way: a copy that a stream of its own makes ahead of time runs alone while the host has nothing
else launched. An exposed activity *holds* the step while the work behind it has been launched and does not begin, or
while the host is blocked waiting for the device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.intervals import Ints, Mask, Spans, covered, first_come, intersect, ints, merge, subtract, union
from gpudoctor.columns import MISSING

COMPUTE, COMMUNICATION, COPY = 0, 1, 2
"""Codes of roles, in the order in which they own a nanosecond of the device."""

Roles = NDArray[np.int8]


def roles(copies: Mask, communication: Mask) -> Roles:
    """What each device activity is to the budget: `COMPUTE`, `COMMUNICATION` or `COPY`.

    Args:
        copies: activities that are memcpy.
        communication: kernels that are collectives or point-to-point transfers between ranks.
    """
    made = np.where(copies, COPY, np.where(communication, COMMUNICATION, COMPUTE))
    return made.astype(np.int8)


def unions(start: Ints, end: Ints, role: Roles) -> tuple[Spans, Spans, Spans]:
    """The unions of computing, communication and copies among the activities of one device."""
    made = [merge(start[role == code], end[role == code]) for code in (COMPUTE, COMMUNICATION, COPY)]
    return made[0], made[1], made[2]


def exposed_ns(start: Ints, dur: Ints, device: Ints, role: Roles) -> tuple[Ints, Mask]:
    """Exposed nanoseconds of each activity, judged against those of its device.

    Args:
        start: begin of each activity.
        dur: its duration; none or a negative one covers nothing.
        device: its device.
        role: its role.

    Returns:
        Nanoseconds, and which of them mean anything: those of communication and copies.
    """
    start, end = ints(start), ints(start) + ints(dur)
    made = np.zeros(len(start), np.int64)
    for one in np.unique(device):
        here = device == one
        compute, communication, _ = unions(start[here], end[here], role[here])
        for code, hides in ((COMMUNICATION, compute), (COPY, union(compute, communication))):
            rows = np.flatnonzero(here & (role == code))
            own, stop = first_come(start[rows], end[rows])
            made[rows] = (stop - own) - covered(hides, own, stop)
    return made, role != COMPUTE


def held_ns(start: Ints, dur: Ints, device: Ints, role: Roles, launched: Ints, blocked: Spans) -> Ints:
    """The part of each activity's exposed time in which the step waited for it.

    Args:
        start: begin of each activity.
        dur: its duration.
        device: its device.
        role: its role.
        launched: when its launch call had returned; `MISSING` when not recorded. One that ran before the first with a
            recorded launch was launched before the recording began.
        blocked: times in which the host waited for the device.
    """
    start, end = ints(start), ints(start) + ints(dur)
    made = np.zeros(len(start), np.int64)
    for one in np.unique(device):
        here = device == one
        known = here & (launched != MISSING)
        recorded = int(start[known].min()) if known.any() else MISSING
        ready = np.where(launched != MISSING, launched, np.where(start < recorded, MISSING, start))
        compute, communication, _ = unions(start[here], end[here], role[here])
        for code, hides in ((COMMUNICATION, compute), (COPY, union(compute, communication))):
            rows = np.flatnonzero(here & (role == code))
            behind = np.flatnonzero(here & (role < code) & (end > start))
            own, stop = first_come(start[rows], end[rows])
            alone = subtract(merge(own, stop), hides)
            waiting = union(_launched_before(alone, start[behind], ready[behind]), intersect(alone, blocked))
            made[rows] = covered(waiting, own, stop)
    return made


def _launched_before(alone: Spans, start: Ints, ready: Ints) -> Spans:
    """The parts of stretches in which the next of the activities behind them had been launched."""
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], alone.end, side="left")
    there = at < len(order)
    begun = ready[order][at[there]]
    return merge(np.clip(begun, alone.start[there], alone.end[there]), alone.end[there])
