"""What a step takes on the device, whatever the host's clock says: a host that runs ahead has short steps.

Activities of one stream run one after the other, so the time that a step's launches take on the busiest stream is the
least time that the step takes in the long run. Communication is left out: it waits for other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames
from gpudoctor.columns import MISSING
from gpudoctor.units import format_ns

AHEAD = 1.05
"""From this ratio of the device's time to the host's on, the host ran ahead; below it is how steps vary."""

_TIMES = ("step_ns", "profiled_step_ns")


def with_device_ns(steps: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """The table `steps` with `device_ns` of the steps that launched something.

    Args:
        steps: the table `steps`.
        kernels: the table `kernels`.
    """
    own = kernels[kernels["launch_step"].notna() & ~frames.is_one_of(kernels, "kernel_class", "communication")]
    streams = own.groupby(["launch_step", "device", "stream"], dropna=False)["dur_ns"].sum()
    busiest = streams.groupby("launch_step").max()
    numbers = frames.integers(steps, "step")
    made = busiest.reindex(numbers)
    return frames.with_integers(steps, "device_ns", made.fillna(MISSING).to_numpy(np.int64))


def corrected(facts: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts, in which no step is shorter than its work on the device.

    Args:
        facts: the Profile's facts.
        steps: rows of `steps` with `device_ns`.
    """
    seen = [row for row in steps if row["device_ns"] is not None and not row["compile_ns"]]
    light = [row["device_ns"] for row in seen if row["observation"] == "light"]
    known = light or [row["device_ns"] for row in seen]
    if not known:
        return dict(facts)
    pace = int(median(known))
    ahead = [name for name in _TIMES if facts.get(name) and pace > AHEAD * facts[name]]
    if not ahead:
        return dict(facts)
    note = (
        f"the host runs ahead of the GPU: its steps last {format_ns(facts[ahead[0]])}, what they launch takes "
        f"{format_ns(pace)} there, which counts as the step time"
    )
    return {**facts, **dict.fromkeys(ahead, pace), "notes": [*facts.get("notes", ()), note]}
