"""Fills the table `rank_versions`: the software that each recorded rank loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = ("torch", "cuda", "hip", "cudnn", "nccl", "driver", "python", "triton")
"""Facts of `environment` that ranks of one job must share."""


def add(
    settings: Sequence[Mapping[str, Any]], tables: dict[str, list[dict[str, Any]]], missing: dict[str, str]
) -> None:
    """Adds the table, or why there is none.

    Args:
        settings: content of each rank's `settings.json`, in the order of the ranks; empty where it was not written.
        tables: takes the rows.
        missing: takes the reason.
    """
    if len(settings) < 2:
        missing["rank_versions"] = "the recording has one rank"
        return
    tables["rank_versions"] = [
        {"rank": rank, "name": name, "version": facts[name]}
        for rank, one in enumerate(settings)
        for facts in [one.get("environment") or {}]
        for name in NAMES
        if facts.get(name) not in (None, "None")
    ]
