"""What the recorded allocations would reserve under other settings of the allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.analysis.allocator.replay import Outcome, replay
from gpudoctor.analysis.allocator.settings import MIB, AllocatorSettings, recorded
from gpudoctor.analysis.memory.lifetimes import Allocations
from gpudoctor.analysis.memory.sequence import from_empty

MOST_ALLOCATIONS = 200_000
"""Allocations up to which other settings are tried: a replay of so many takes about a second for each setting."""

SPLIT_MB = 128
"""The `max_split_size_mb` that is tried: blocks of large activations stay whole, those of layers do not."""

DIVISIONS = 4
"""The `roundup_power2_divisions` that is tried: sizes that differ little become the same, for up to a quarter more."""


def candidates(now: AllocatorSettings) -> dict[str, AllocatorSettings]:
    """The settings that are tried, by how they are written; the recorded ones first, under no text."""
    tried = {"": now}
    if not now.expandable:
        tried["expandable_segments:True"] = replace(now, expandable=True, max_split_bytes=None)
    if now.max_split_bytes is None and not now.expandable:
        tried[f"max_split_size_mb:{SPLIT_MB}"] = replace(now, max_split_bytes=SPLIT_MB * MIB)
    if not any(now.divisions):
        tried[f"roundup_power2_divisions:{DIVISIONS}"] = replace(now, divisions=(DIVISIONS,) * len(now.divisions))
    return tried


def predictions(
    allocations: Allocations,
    device: int,
    settings: Mapping[str, Any],
    capacity_bytes: int | None = None,
    failed: Sequence[tuple[int, int]] = (),
) -> list[dict[str, Any]]:
    """Rows of `allocator_replays` for a device; none where the history is too long to be replayed.

    What was alive before the recording is placed first, in the order of its addresses: how it came there is not known.
    The recorded settings are replayed in the same way, so that the rows compare. Requests that failed, as entry and
    bytes, are made again.
    """
    if not len(allocations) or len(allocations) > MOST_ALLOCATIONS:
        return []
    made = []
    for text, tried in candidates(recorded(settings)).items():
        outcome = replay(from_empty(allocations, device, failed), tried, capacity_bytes=capacity_bytes)
        made.append({"device": device, "setting": text, **_row(outcome, capacity_bytes is not None)})
    return made


def _row(outcome: Outcome, known: bool) -> dict[str, Any]:
    return {
        "peak_reserved_bytes": outcome.peak_reserved_bytes,
        "reserved_bytes": outcome.reserved_bytes,
        "retries": outcome.retries if known else None,
        "ooms": outcome.ooms if known else None,
    }
