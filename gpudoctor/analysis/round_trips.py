"""Tensors that leave a device and come back within a step: the table `round_trips`.

The source tells that one value becomes the other (host_flow.py), the copies that both ran, in that order and about as
large: an image that a function of NumPy's changes, not indices that it finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames, host_flow
from gpudoctor.analysis.intervals import Spans, covered, merge
from gpudoctor.profile import frame

LARGEST_RATIO = 4
"""Between the bytes of the two copies: float64 becomes float16, an image a mask of bytes."""


def rows(kernels: pd.DataFrame, sources: Mapping[str, str]) -> pd.DataFrame:
    """One row for each copy back.

    Args:
        kernels: the table `kernels`; copies with lines count.
        sources: the user's files.
    """
    copies = kernels[frames.is_one_of(kernels, "kind", "memcpy") & kernels["line"].notna() & kernels["bytes"].notna()]
    copies = copies[copies["launch_step"].notna()].sort_values("start_ns")
    both = set(copies["direction"].dropna()) >= {"d2h", "h2d"}
    flows = host_flow.flows(sources) if both else []
    made: list[dict[str, Any]] = []
    work = _work(kernels) if flows else {}
    for flow in flows:
        own = copies[copies["file"] == flow.file]
        line = own["line"]
        out = own[(own["direction"] == "d2h") & line.between(*flow.out)]
        back = own[(own["direction"] == "h2d") & line.between(*flow.back)]
        if len(out) and len(back):
            made += _pairs(flow, _records(out), _records(back), work)
    return frame("round_trips", sorted(made, key=lambda row: (row["back_kernel"], row["line"])))


def _records(copies: pd.DataFrame) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = copies.to_dict("records")  # type: ignore[assignment]
    return made


def _work(kernels: pd.DataFrame) -> dict[int, Spans]:
    """When each device ran kernels."""
    own = kernels[frames.is_one_of(kernels, "kind", "kernel")]
    start, device = frames.integers(own, "start_ns"), frames.integers(own, "device")
    end = start + np.maximum(frames.integers(own, "dur_ns"), 0)
    return {int(one): merge(start[device == one], end[device == one]) for one in np.unique(device)}


def _pairs(
    flow: host_flow.Flow, outs: list[dict[str, Any]], backs: list[dict[str, Any]], work: Mapping[int, Spans]
) -> list[dict[str, Any]]:
    """Each copy back with the last copy out before it that it can be made of."""
    made = []
    for back in backs:
        fitting = [
            out
            for out in outs
            if out["launch_step"] == back["launch_step"]
            and out["device"] == back["device"]
            and out["start_ns"] + out["dur_ns"] <= back["start_ns"]
            and out["bytes"] <= LARGEST_RATIO * back["bytes"]
            and back["bytes"] <= LARGEST_RATIO * out["bytes"]
        ]
        if not fitting:
            continue
        out = fitting[-1]
        outs = [one for one in outs if one["start_ns"] > out["start_ns"]]
        begin, end = int(out["start_ns"]), int(back["start_ns"] + back["dur_ns"])
        busy = work.get(int(back["device"]))
        ran = 0 if busy is None else int(covered(busy, np.array([begin]), np.array([end]))[0])
        made.append(
            {
                "file": flow.file,
                "line": int(out["line"]),
                "back_line": int(back["line"]),
                "function": flow.function,
                "step": int(back["launch_step"]),
                "out_kernel": int(out["kernel"]),
                "back_kernel": int(back["kernel"]),
                "bytes": int(out["bytes"] + back["bytes"]),
                "copy_ns": int(out["dur_ns"] + back["dur_ns"]),
                "idle_ns": max(0, end - begin - ran),
            }
        )
    return made
