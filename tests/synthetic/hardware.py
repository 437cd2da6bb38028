"""What the synthetic machine is made of: a GPU, the link to it, and what things cost the host."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

US = 1_000
MS = 1_000_000

ELEMENT_BYTES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "double": 8, "long int": 8, "int": 4, "bool": 1}
"""Bytes of an element, by the name that Kineto gives a dtype."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device.

    Attributes:
        name: as the driver reports it.
        capability: compute capability.
        sms: streaming multiprocessors.
        memory_bytes: what the driver reports.
        bytes_per_s: bandwidth of its memory.
        flops: peak operations a second by precision (fp64, fp32, tf32, bf16, fp16).
        pinned_bytes_per_s: what a copy from pinned memory reaches.
        pageable_bytes_per_s: what one from pageable memory reaches.
        link_bytes_per_s: what a collective reaches on the link to other GPUs.
    """

    name: str
    capability: tuple[int, int]
    sms: int
    memory_bytes: int
    bytes_per_s: float
    flops: dict[str, float]
    pinned_bytes_per_s: float = 24e9
    pageable_bytes_per_s: float = 6e9
    link_bytes_per_s: float = 120e9

    def properties(self) -> dict[str, Any]:
        """An entry of a trace's `deviceProperties`."""
        major, minor = self.capability
        return {
            "id": 0, "name": self.name, "totalGlobalMem": self.memory_bytes,
            "computeMajor": major, "computeMinor": minor, "maxThreadsPerBlock": 1024,
            "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152,
            "numSms": self.sms, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 166912,
            "sharedMemPerMultiprocessor": 167936,
        }  # fmt: skip


A100 = Gpu(
    "NVIDIA A100-SXM4-80GB", (8, 0), 108, 84_974_239_744, 2.039e12,
    {"fp64": 9.7e12, "fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
)  # fmt: skip
H100 = Gpu(
    "NVIDIA H100 80GB HBM3", (9, 0), 132, 85_018_279_936, 3.35e12,
    {"fp64": 34e12, "fp32": 67e12, "tf32": 494e12, "bf16": 989e12, "fp16": 989e12}, 50e9, 9e9, 350e9,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costs:
    """Host time in nanoseconds, medians.

    Attributes:
        python: between two operators that Python calls.
        enter, leave: an operator before and after what it calls.
        call: a runtime call that launches nothing (an event, say).
        launch: a launch call.
        frame: a Python function, where they are recorded.
    """

    python: int = 2_500
    enter: int = 1_300
    leave: int = 500
    call: int = 900
    launch: int = 3_200
    frame: int = 0


BARE = Costs()
LIGHT = Costs(enter=1_900, leave=800, call=1_900, launch=4_500)
DETAIL = Costs(python=4_500, enter=3_200, leave=1_300, call=2_400, launch=5_200, frame=700)

MATRIX_SHARE, MEMORY_SHARE = 0.62, 0.78
"""Shares of the peaks that well-fed kernels reach."""
SHORTEST_NS = 1_500
"""A kernel that does nothing."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel is: its name and its work; how long it takes follows from the device.

    Attributes:
        name: as CUPTI shows it.
        flops: operations.
        moved_bytes: bytes to and from the device's memory.
        precision: whose peak applies.
        blocks: grid.
        threads: of a block.
        share: of what a well-fed kernel reaches; less for kernels that are bad at their work.
    """

    name: str
    flops: float = 0.0
    moved_bytes: float = 0.0
    precision: str = "fp32"
    blocks: int = 1
    threads: int = 128
    share: float = 1.0
    registers: int = 32
    shared_memory: int = 0

    def duration_ns(self, gpu: Gpu) -> int:
        """How long it takes on an idle device; few blocks leave multiprocessors and bandwidth unused."""
        filled = min(1.0, self.blocks / gpu.sms)
        compute = self.flops / (gpu.flops[self.precision] * MATRIX_SHARE * filled * self.share)
        memory = self.moved_bytes / (gpu.bytes_per_s * MEMORY_SHARE * min(1.0, 2 * filled) * self.share)
        return SHORTEST_NS + round(max(compute, memory) * 1e9)

    def occupancy(self, gpu: Gpu) -> dict[str, Any]:
        """What Kineto says of a launch."""
        per_sm = self.blocks / gpu.sms
        warps = per_sm * self.threads / 32
        return {
            "registers per thread": self.registers, "shared memory": self.shared_memory,
            "blocks per SM": round(per_sm, 6), "warps per SM": round(warps, 6), "grid": [self.blocks, 1, 1],
            "block": [self.threads, 1, 1], "est. achieved occupancy %": min(100, round(warps / 64 * 100)),
        }  # fmt: skip


def numel(shape: tuple[int, ...]) -> int:
    """Elements of a tensor."""
    return prod(shape)


def elementwise(functor: str, elements: int, moved_bytes: float, tensors: int = 2) -> Kernel:
    """One of ATen's pointwise kernels: 512 elements a block."""
    name = (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, {tensors}ul> >"
        f"(int, {functor}, std::array<char*, {tensors}ul>)"
    )
    return Kernel(name, 0.0, moved_bytes, blocks=max(1, ceil(elements / 512)))
