"""Parts of a random program with the noise they are dealt: kernels, copies, waits and the operators around them."""

from __future__ import annotations

import random

from tests.synthetic.random_device import MULTIPROCESSORS, TO_DEVICE, TO_HOST, Work
from tests.synthetic.random_host import Call, Operator
from tests.synthetic.random_recipe import US, Recipe

COMPUTE, BRANCH, NCCL, COPIES = 7, 13, 20, 24
"""Streams: the default one, a second for compute, of communication, and of copies."""

PINNED_NS, PAGEABLE_NS = 1 / 24, 1 / 6
"""Nanoseconds a byte takes over PCIe 4.0 x16 from pinned memory, and through the driver's buffers."""

STAGED_BYTES = 64 * 1024
"""Pageable copies to the device up to this size do not wait: the driver takes the bytes along (CUDA's API manual,
"API synchronization behavior")."""

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{0}, std::array<char*, 3ul> >"
    "(int, at::native::{0}, std::array<char*, 3ul>)"
)
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Parts:
    """Makes parts, each with a number of its own and its own noise.

    Args:
        recipe: medians.
        rng: of the noise.
    """

    def __init__(self, recipe: Recipe, rng: random.Random) -> None:
        self._recipe, self._rng = recipe, rng
        self._keys = 0

    def _key(self) -> int:
        self._keys += 1
        return self._keys

    def about(self, ns: float, sigma: float = 0.15) -> int:
        """So many nanoseconds, give or take: log-normal, as times of software are, with a rare hiccup."""
        factor = self._rng.lognormvariate(0.0, sigma)
        return round(ns * factor * (4.0 if self._rng.random() < 0.004 else 1.0))

    # -- device ------------------------------------------------------------------------------------------------------

    def work(self, kind: str, name: str, dur_ns: float, stream: int = COMPUTE, **more: object) -> Work:
        """An activity that takes about so long: a device is steadier than a host."""
        recipe, rng = self._recipe, self._rng
        dur = max(1_000, round(dur_ns * rng.lognormvariate(0.0, 0.03)))
        latency, gap = self.about(recipe.latency_ns, 0.2), round(recipe.gap_ns * rng.lognormvariate(0.0, 0.2))
        return Work(self._key(), kind, name, stream, dur, latency, gap, **more)  # type: ignore[arg-type]

    def kernel(self, name: str, dur_ns: float, fills: bool, stream: int = COMPUTE) -> Work:
        """A kernel; one that fills the device has it for itself."""
        needs = MULTIPROCESSORS if fills else None
        return self.work("kernel", name, dur_ns, stream, needs=needs, matrix=name == GEMM)

    def node(self, name: str, dur_ns: float, fills: bool) -> Work:
        """A kernel of a graph: the next one begins sooner."""
        made = self.kernel(name, dur_ns, fills)
        gap = round(made.gap_ns * 0.6)
        return Work(
            made.key, "kernel", name, COMPUTE, made.dur_ns, made.latency_ns, gap, made.needs, matrix=made.matrix
        )

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, api: str, cost_ns: float, **more: object) -> Call:
        """A runtime call that takes about so long when it waits for nothing."""
        return Call(self._key(), api, self.about(cost_ns), self.about(400), **more)  # type: ignore[arg-type]

    def launch(self, work: Work) -> Call:
        """Launches a kernel."""
        return self.call("cudaLaunchKernel", self._recipe.launch_ns, works=(work,), stream=work.stream)

    def fill(self, work: Work) -> Call:
        """Sets memory."""
        return self.call("cudaMemsetAsync", self._recipe.launch_ns, works=(work,), stream=work.stream)

    def replay(self, works: tuple[Work, ...]) -> Call:
        """Replays a graph: dearer than a launch, and a little dearer with every kernel."""
        return self.call("cudaGraphLaunch", 3 * self._recipe.launch_ns + 150 * len(works), works=works)

    def record(self, mark: str, stream: int = COMPUTE) -> Call:
        """Records an event."""
        return self.call("cudaEventRecord", 1.0 * US, mark=mark, stream=stream)

    def stream_wait(self, mark: str, stream: int) -> Call:
        """Has a stream wait for an event."""
        return self.call("cudaStreamWaitEvent", 0.9 * US, mark=mark, stream=stream)

    def tail(self) -> int:
        """From the end of what a call waits for to its return."""
        return self.about(self._recipe.tail_ns, 0.25)

    def wait(self, api: str, waits: str, stream: int = COMPUTE, mark: str = "") -> Call:
        """A call that waits for the device."""
        return self.call(api, 1.5 * US, waits=waits, stream=stream, mark=mark, tail_ns=self.tail())

    def copy(self, to_device: bool, size: int, pinned: bool, waits: bool, stream: int = COMPUTE) -> Call:
        """A copy over the link, whose call returns when it is done if it `waits`."""
        side = "Pinned" if pinned else "Pageable"
        name = f"Memcpy HtoD ({side} -> Device)" if to_device else f"Memcpy DtoH (Device -> {side})"
        dur = 1.2 * US + size * (PINNED_NS if pinned else PAGEABLE_NS)
        work = self.work(
            "memcpy", name, dur, stream, needs=TO_DEVICE if to_device else TO_HOST, size_bytes=size
        )  # fmt: skip
        cost = self._recipe.launch_ns + 1 * US + (0 if pinned else min(size, STAGED_BYTES) * 0.1)
        return self.call(
            "cudaMemcpyAsync", cost, works=(work,), stream=stream, waits="copy" * waits, tail_ns=self.tail()
        )

    # -- operators ---------------------------------------------------------------------------------------------------

    def operator(self, names: str, role: str, calls: tuple[Call, ...] = (), **more: object) -> Operator:
        """Operators one inside another, separated by blanks, and what the innermost calls."""
        recipe, shown = self._recipe, tuple(names.split()) if not names.startswith(_WHOLE) else (names,)
        enter = self.about(recipe.operator_ns * (0.4 + 0.3 * len(shown)), 0.2) if shown else 0
        leave = self.about(recipe.operator_ns * 0.3, 0.2) if shown else 0
        gap = self.about(recipe.python_ns, 0.3)
        return Operator(self._key(), shown, role, calls, gap, enter, leave, **more)  # type: ignore[arg-type]

    def backward(self, node: str, inner: str, calls: tuple[Call, ...], role: str = "backward") -> Operator:
        """A node of autograd's graph, evaluated on its thread: the engine costs less than Python."""
        recipe = self._recipe
        names = (f"autograd::engine::evaluate_function: {node}", node, *inner.split())
        gap, enter, leave = 0.2 * recipe.python_ns + 1 * US, 1.5 * recipe.operator_ns, 0.5 * recipe.operator_ns
        return Operator(
            self._key(), names, role, calls, self.about(gap, 0.3), self.about(enter, 0.2), self.about(leave, 0.2), True
        )

    def item(self) -> Operator:
        """`.item()`: a copy of some bytes to the host, and a wait for the stream."""
        pageable = self._recipe.item_pageable
        calls = (self.copy(False, 4, not pageable, pageable), self.wait("cudaStreamSynchronize", "stream"))
        return self.operator("aten::item aten::_local_scalar_dense", "item", calls)


_WHOLE = "enumerate("
