"""Settings of the caching allocator, as `PYTORCH_CUDA_ALLOC_CONF` takes them and as a snapshot records them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
MIN_BLOCK = 512
SMALL_REQUEST = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB
OWN_ROUNDING = 2 * MIB
"""Sizes of the allocator in bytes (`kMinBlockSize`, `kSmallSize`, `kSmallBuffer`, `kLargeBuffer`, `kMinLargeAlloc` and
`kRoundLarge` in c10/core/CachingDeviceAllocator.h and c10/cuda/CUDACachingAllocator.cpp, torch 2.7 to 2.13)."""

_INTERVALS = 16  # roundup_power2_divisions has one entry for each power of two from 1 MiB on
_LIST = re.compile(r"\[(.*?)\]")


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """What changes where the allocator places blocks.

    Attributes:
        max_split_bytes: blocks from this size on are not split; None for no limit.
        divisions: `roundup_power2_divisions` for each power of two from 1 MiB on; 0 rounds to 512 bytes only.
        expandable: `expandable_segments`.
        gc_threshold: share of the device above which unused blocks are given back before growing; None for never.
    """

    max_split_bytes: int | None = None
    divisions: tuple[int, ...] = (0,) * _INTERVALS
    expandable: bool = False
    gc_threshold: float | None = None

    def rounded(self, size: int) -> int:
        """The size that a block for a request of `size` bytes has at least."""
        if size < MIN_BLOCK:
            return MIN_BLOCK
        divisions = self.divisions[min(max(size.bit_length() - 1 - 20, 0), _INTERVALS - 1)]
        if divisions > 1 and size > MIN_BLOCK * divisions:
            return _next_division(size, divisions)
        return -(-size // MIN_BLOCK) * MIN_BLOCK


def _next_division(size: int, divisions: int) -> int:
    """The next of `divisions` equal steps between two powers of two."""
    floor = 1 << (size.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    return size if size == floor or not step else -(-size // step) * step


def segment_bytes(size: int) -> int:
    """Bytes that are asked from the driver for a block of `size` bytes for which there is no room."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // OWN_ROUNDING) * OWN_ROUNDING


def parse(text: str) -> AllocatorSettings:
    """Settings from the text of `PYTORCH_CUDA_ALLOC_CONF` or `PYTORCH_ALLOC_CONF`; what is not of interest is skipped.

    Raises:
        ValueError: a value is no number.
    """
    inside = _LIST.findall(text)
    pairs = dict(part.split(":", 1) for part in _LIST.sub("[]", text).replace(" ", "").split(",") if ":" in part)
    split, threshold = pairs.get("max_split_size_mb"), pairs.get("garbage_collection_threshold")
    divisions = pairs.get("roundup_power2_divisions", "0")
    return AllocatorSettings(
        max_split_bytes=int(split) * MIB if split and split != "-1" else None,
        divisions=_divisions(inside[0] if divisions == "[]" and inside else divisions),
        expandable=pairs.get("expandable_segments", "").lower() == "true",
        gc_threshold=float(threshold) if threshold and float(threshold) > 0 else None,
    )


def _divisions(text: str) -> tuple[int, ...]:
    """One number for all sizes, or `256:1,512:2,>:8`: sizes in MiB; the first counts for all below, `>` for all beyond.

    Sizes between two that are listed have no divisions (`parseRoundUpPower2Divisions`, c10/core/AllocatorConfig.cpp).
    """
    if ":" not in text:
        return (int(text or 0),) * _INTERVALS
    made, last = [0] * _INTERVALS, 0
    for number, part in enumerate(text.replace(" ", "").split(",")):
        upto, value = part.split(":")
        if upto == ">":
            made[last + 1 :] = [int(value)] * (_INTERVALS - last - 1)
            continue
        last = min(max(int(upto).bit_length() - 1, 0), _INTERVALS - 1)
        if number == 0:
            made[:last] = [int(value)] * last
        made[last] = int(value)
    return tuple(made)


def recorded(settings: Mapping[str, Any]) -> AllocatorSettings:
    """Settings from a snapshot's `allocator_settings`; what is missing is as torch has it by default."""
    split, threshold = settings.get("max_split_size"), settings.get("garbage_collection_threshold")
    divisions = settings.get("roundup_power2_divisions")
    values: list[int] = []
    if isinstance(divisions, Mapping):
        values = [int(value) for _, value in sorted(divisions.items(), key=lambda item: int(item[0]))]
    return AllocatorSettings(
        max_split_bytes=split if isinstance(split, int) and 0 < split < 1 << 62 else None,
        divisions=tuple((values + [0] * _INTERVALS)[:_INTERVALS]),
        expandable=settings.get("expandable_segments") is True,
        gc_threshold=float(threshold) if isinstance(threshold, float) and threshold > 0 else None,
    )
