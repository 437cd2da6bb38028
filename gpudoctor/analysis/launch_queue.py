"""How far the host runs ahead of a device: from launch call to kernel, and launches that found the device idle."""

from __future__ import annotations

import numpy as np

from gpudoctor.analysis.intervals import Ints, Mask, Spans, contains


def first_of_call(call: Ints) -> Mask:
    """The first activity of each launch call, in the order given: a graph replay is one launch."""
    made = np.zeros(len(call), np.bool_)
    made[np.unique(call, return_index=True)[1]] = True
    return made


def starved(busy: Spans, launched: Ints) -> Mask:
    """Launches that found the device idle: nothing ran on it when the launch call began.

    Args:
        busy: times in which the device was busy.
        launched: begins of the launch calls.
    """
    return ~contains(busy, launched)
