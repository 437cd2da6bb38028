"""Which device activities nothing hides: communication without computing, copies without either.

Computing is every kernel that is not communication, and memsets. A nanosecond in which several copies (or several
collectives) run exposed at once belongs to the one that began first, so that what the activities of a device own adds
up to the union.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpudoctor.analysis.intervals import Ints, Mask, Spans, covered, first_come, ints, merge, union

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
