"""GPU specifications: what a device could do at most, found by the name that torch and Kineto report.

The figures and their sources stand in `gpus.toml` beside this module. Peaks are dense, matrix and vector units apart.
A device that is not known for certain is not known: `find` would rather return None than the numbers of a similar card.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

TERA = 1e12
GIGA = 1e9

SMALLEST_MEMORY_SHARE = 0.88
"""A driver reports less memory than the nominal GiB: page tables, ECC (1/16 on GDDR boards) and reserved areas. The
largest gap seen is a T4's with ECC, 14.56 of 16 GiB (91 %); boards of one name differ by a factor of two."""

LARGEST_MEMORY_SHARE = 1.005
"""It never reports more. H100 boards of 96 GB (95.07 GiB reported) are not the NVL of 94 GB: 1.011 of its size."""

_NOISE = frozenset({"nvidia", "amd", "tesla", "geforce", "instinct", "corporation", "gpu", "accelerator"})
_NAMELESS: tuple[frozenset[str], ...] = (frozenset(), frozenset({"radeon", "graphics"}))
"""Names of devices whose product the ROCm runtime could not look up (no or an old libdrm table)."""


@dataclass(frozen=True, slots=True)
class Source:
    """The document that figures come from."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Link:
    """A way out of the device.

    Attributes:
        name: what it is, e.g. NVLink 4.
        bytes_per_s: peak bandwidth of one device in one direction.
    """

    name: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peak figures of one device as a trace sees it (of a card with two dies: one die).

    Attributes:
        name: the board.
        vendor: NVIDIA or AMD.
        arch: sm_90 (compute capability 9.0) or a gfx target.
        memory_bytes: nominal memory size; drivers report slightly less.
        memory_bytes_per_s: peak bandwidth of device memory.
        sms: streaming multiprocessors (NVIDIA) or compute units (AMD).
        vector_flops: peak operations a second of the ordinary cores by dtype (fp64, fp32, fp16, bf16).
        matrix_flops: dense peak of the Tensor or Matrix Cores by dtype (fp64, fp32, tf32, fp16, bf16, fp8, int8, fp4).
        link: to other GPUs; None when there is none but PCIe, or when it is not known.
        host_link: to the host; None when it is not known.
        devices_per_card: devices that share one card; the card's figures are this many times the device's.
        sources: where the figures come from.
        note: what to know about them.
    """

    name: str
    vendor: str
    arch: str
    memory_bytes: int
    memory_bytes_per_s: float
    sms: int
    vector_flops: Mapping[str, float]
    matrix_flops: Mapping[str, float]
    link: Link | None
    host_link: Link | None
    devices_per_card: int
    sources: tuple[Source, ...]
    note: str

    def matmul_flops(self, dtype: str) -> float | None:
        """Peak operations a second of a matrix product in a dtype.

        The matrix units' peak; the vector units' where no matrix unit takes the dtype (fp32 on NVIDIA, fp64 before the
        A100). None when the sources state neither.
        """
        return self.matrix_flops.get(dtype, self.vector_flops.get(dtype))


@dataclass(frozen=True, slots=True)
class _Entry:
    gpu: Gpu
    model: str
    words: frozenset[str]
    needs: frozenset[str]

    def fits(self, words: frozenset[str]) -> bool:
        needed = self.needs | {self.model}
        return needed <= words <= needed | self.words


def known() -> tuple[Gpu, ...]:
    """Every GPU whose specifications are known, in the order of the file."""
    return tuple(entry.gpu for entry in _entries())


def find(name: str, memory_bytes: int | None = None, sms: int | None = None) -> Gpu | None:
    """The GPU that a trace's `deviceProperties` describe.

    Every word of the name must be one that is known for the board, so that a Laptop, MIG or Ti variant does not pass
    for the full card. Boards that share a name are told apart by memory and multiprocessors.

    Args:
        name: `name`, e.g. "NVIDIA A100-SXM4-80GB".
        memory_bytes: `totalGlobalMem`; None when not recorded.
        sms: `numSms`; None when not recorded. Fewer than the board has means a partition, which does not match.

    Returns:
        The specifications; None when the device is unknown, or when more than one board fits.
    """
    words = _words(name)
    if words in _NAMELESS:
        if memory_bytes is None or sms is None:
            return None
        named = [entry for entry in _entries() if entry.gpu.vendor == "AMD"]
    else:
        named = [entry for entry in _entries() if entry.fits(words)]
    fitting = [entry.gpu for entry in named if _agrees(entry.gpu, memory_bytes, sms)]
    return fitting[0] if len(fitting) == 1 else None


def _agrees(gpu: Gpu, memory_bytes: int | None, sms: int | None) -> bool:
    if sms is not None and sms != gpu.sms:
        return False
    return memory_bytes is None or (
        SMALLEST_MEMORY_SHARE * gpu.memory_bytes <= memory_bytes <= LARGEST_MEMORY_SHARE * gpu.memory_bytes
    )


def _words(name: str) -> frozenset[str]:
    plain = re.sub(r"\((?:r|tm)\)", " ", name.casefold())
    joined = re.sub(r"(\d) ?gi?b\b", r"\1gb", plain)  # "80 GB" is one word
    return frozenset(re.findall(r"[a-z0-9.]+", joined)) - _NOISE


@cache
def _entries() -> tuple[_Entry, ...]:
    data = tomllib.loads(resources.files("gpudoctor").joinpath("gpus.toml").read_text(encoding="utf-8"))
    sources = {key: Source(**value) for key, value in data["sources"].items()}
    whole: dict[str, dict[str, Any]] = {}
    for own in data["gpu"]:
        whole[own["name"]] = {"note": "", **whole.get(own.get("like", ""), {}), **own}
    return tuple(_entry(row, sources) for row in whole.values())


def _entry(row: Mapping[str, Any], sources: Mapping[str, Source]) -> _Entry:
    gpu = Gpu(
        name=row["name"],
        vendor=row["vendor"],
        arch=row["arch"],
        memory_bytes=row["memory_gib"] * 2**30,
        memory_bytes_per_s=float(row["bandwidth_gb_per_s"] * GIGA),
        sms=row["sms"],
        vector_flops={dtype: float(round(tflops * TERA)) for dtype, tflops in row["vector_tflops"].items()},
        matrix_flops={dtype: float(round(tflops * TERA)) for dtype, tflops in row["matrix_tflops"].items()},
        link=_link(row.get("link")),
        host_link=_link(row.get("host_link")),
        devices_per_card=row.get("devices_per_card", 1),
        sources=tuple(sources[key] for key in row["sources"]),
        note=row["note"],
    )
    return _Entry(gpu, row["model"], frozenset(row["words"]), frozenset(row.get("needs", ())))


def _link(row: Mapping[str, Any] | None) -> Link | None:
    return Link(row["name"], row["gb_per_s"] * GIGA) if row else None


def of_trace(metadata: Mapping[str, Any]) -> dict[int, Gpu]:
    """Specifications of the GPUs that a trace names in its `deviceProperties`, by index; those that are known."""
    properties = metadata.get("deviceProperties")
    made: dict[int, Gpu] = {}
    for item in properties if isinstance(properties, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("id"), int):
            memory, sms = item.get("totalGlobalMem"), item.get("numSms")
            gpu = find(item["name"], memory if isinstance(memory, int) else None, sms if isinstance(sms, int) else None)
            if gpu is not None:
                made[item["id"]] = gpu
    return made
