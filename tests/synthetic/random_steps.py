"""Steps of a random program: the same operators in every step, each with noise of its own."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.synthetic.random_host import Operator
from tests.synthetic.random_parts import (
    ALL_REDUCE,
    BRANCH,
    COMPUTE,
    GEMM,
    NCCL,
    NORM,
    POINTWISE,
    STAGED_BYTES,
    Parts,
)
from tests.synthetic.random_recipe import MS, US, Recipe

LOADERS = {False: "_SingleProcessDataLoaderIter", True: "_MultiProcessingDataLoaderIter"}
HAND_OVER_NS = 25 * US
"""From one thread's end to the other's begin: a condition variable, and the scheduler."""

STEP = "Optimizer.step#AdamW.step"


class Steps:
    """Makes the steps of one program.

    Args:
        recipe: what it is like.
        rng: for all that varies.
    """

    def __init__(self, recipe: Recipe, rng: random.Random) -> None:
        self._recipe, self._rng = recipe, rng
        self.parts = Parts(recipe, rng)
        sizes = [rng.lognormvariate(0.0, recipe.spread) for _ in range(recipe.layers)]
        self._sizes = [(size, rng.random() < 0.7) for size in sizes]
        self._frees = sorted(rng.random() for _ in range(recipe.frees))
        self._mallocs = sorted(rng.random() for _ in range(recipe.mallocs))

    def step(self, number: int) -> list[Operator]:
        """One step."""
        made = [*self._input(number), *self._forward(number), *self._backward(number), *self._update()]
        recipe, parts = self._recipe, self.parts
        if 2.0 in recipe.items:
            made.append(parts.item())
        if recipe.throttled:
            wait = parts.wait("cudaEventSynchronize", "mark", mark=f"{number}.forward")
            made.append(parts.operator("", "synchronize", (wait,)))
        if recipe.synchronize:
            made.append(parts.operator("", "synchronize", (parts.wait("cudaDeviceSynchronize", "device"),)))
        return made

    # -- input -------------------------------------------------------------------------------------------------------

    def _input(self, number: int) -> list[Operator]:
        recipe, parts, made = self._recipe, self.parts, []
        if recipe.loader_ns:
            name = f"enumerate(DataLoader)#{LOADERS[recipe.workers > 0]}.__next__"
            load = parts.operator(name, "loader")
            if recipe.workers:
                load = replace(load, batch=number)
            else:
                load = replace(load, enter_ns=parts.about(recipe.loader_ns, 0.1))
            made.append(load)
        if recipe.batch_bytes:
            waits = not recipe.pinned and recipe.batch_bytes > STAGED_BYTES
            calls = [parts.copy(True, recipe.batch_bytes, recipe.pinned, waits)]
            if recipe.blocking:
                calls.append(parts.wait("cudaStreamSynchronize", "stream"))
            made.append(parts.operator("aten::to aten::_to_copy aten::copy_", "batch", tuple(calls)))
        for _ in range(recipe.small_copies):
            call = parts.copy(True, self._rng.randrange(8, STAGED_BYTES), False, False)
            made.append(parts.operator("aten::to aten::_to_copy aten::copy_", "label", (call,)))
        return made

    # -- forward -----------------------------------------------------------------------------------------------------

    def _forward(self, number: int) -> list[Operator]:
        recipe, parts = self._recipe, self.parts
        made = []
        items = [share for share in recipe.items if share <= 1.0]
        for layer, (size, fills) in enumerate(self._sizes):
            if recipe.graph and layer < recipe.graph:
                if layer == 0:
                    made.append(self._graph())
                continue
            made += self._layer(size, fills)
            if recipe.branch and layer == recipe.layers // 2:
                made += self._branch(f"{number}.branch")
            while items and items[0] * recipe.layers <= layer + 1:
                made.append(parts.item())
                items.pop(0)
            made += self._memory(layer)
        if recipe.throttled:
            made.append(parts.operator("", "fork", (parts.record(f"{number}.forward"),)))
        return made

    def _layer(self, size: float, fills: bool) -> list[Operator]:
        parts, ns = self.parts, self._recipe.kernel_ns * size
        norm = parts.launch(parts.kernel(NORM, 0.4 * ns, False))
        return [
            parts.operator("aten::linear aten::addmm", "layer", (parts.launch(parts.kernel(GEMM, ns, fills)),)),
            parts.operator("aten::layer_norm aten::native_layer_norm", "norm", (norm,)),
        ]

    def _graph(self) -> Operator:
        """Layers whose kernels were captured; Python replays them without an operator."""
        parts, works = self.parts, []
        for size, fills in self._sizes[: self._recipe.graph]:
            works.append(parts.node(GEMM, self._recipe.kernel_ns * size, fills))
            works.append(parts.node(NORM, 0.4 * self._recipe.kernel_ns * size, False))
        return parts.operator("", "graph", (parts.replay(tuple(works)),))

    def _branch(self, mark: str) -> list[Operator]:
        """Work on a second stream, which later work of the first waits for."""
        parts, recipe = self.parts, self._recipe
        name = POINTWISE.format("SiluFunctor<float>")
        fork = parts.operator("", "fork", (parts.record(mark), parts.stream_wait(mark, BRANCH)))
        works = [parts.kernel(name, recipe.kernel_ns, self._rng.random() < 0.6, BRANCH) for _ in range(recipe.branch)]
        made = [parts.operator("aten::silu", "branch", (parts.launch(work),)) for work in works]
        made.append(self._layer(1.0, True)[0])  # the first stream goes on beside it
        back = (parts.record(f"{mark}.done", BRANCH), parts.stream_wait(f"{mark}.done", COMPUTE))
        return [fork, *made, parts.operator("", "join", back)]

    def _memory(self, layer: int) -> list[Operator]:
        """What the caching allocator asks the driver for."""
        parts, recipe, made = self.parts, self._recipe, []
        at = [int(share * recipe.layers) for share in self._mallocs]
        for _ in range(at.count(layer)):
            work = parts.about(self._rng.uniform(0.1, 0.4) * MS, 0.05)
            call = parts.call("cudaMalloc", 20 * US, waits="device" * recipe.malloc_waits, after_ns=work)
            made.append(parts.operator("aten::empty", "memory", (call,)))
        at = [int(share * recipe.layers) for share in self._frees]
        for _ in range(at.count(layer)):
            work = parts.about(self._rng.uniform(0.2, 1.0) * MS, 0.05)
            made.append(
                parts.operator(
                    "", "memory", (parts.call("cudaFree", 10 * US, waits="device", after_ns=work),)
                )
            )  # fmt: skip
        return made

    # -- backward ----------------------------------------------------------------------------------------------------

    def _backward(self, number: int) -> list[Operator]:
        recipe, parts = self._recipe, self.parts
        made: list[Operator] = []
        bounds = [recipe.layers * (bucket + 1) // max(1, recipe.buckets) for bucket in range(recipe.buckets)]
        for layer, (size, fills) in enumerate(reversed(self._sizes), start=1):
            made += self._layer_backward(size, fills)
            for bucket in range(bounds.count(layer)):
                made += self._reduce(f"{number}.{layer}.{bucket}")
        if recipe.overlapped:  # the waits come at the end
            waits = [one for one in made if one.role == "reduced"]
            made = [one for one in made if one.role != "reduced"] + waits
        made[0] = replace(made[0], gap_ns=made[0].gap_ns + parts.about(HAND_OVER_NS, 0.3))
        return made

    def _layer_backward(self, size: float, fills: bool) -> list[Operator]:
        parts, ns = self.parts, self._recipe.kernel_ns * size
        norm = parts.launch(parts.kernel(NORM.replace("layer_norm", "layer_norm_grad"), 0.7 * ns, False))
        products = tuple(parts.launch(parts.kernel(GEMM, ns, fills)) for _ in range(2))
        return [
            parts.backward("NativeLayerNormBackward0", "aten::native_layer_norm_backward", (norm,)),
            parts.backward("AddmmBackward0", "aten::mm", products),
        ]

    def _reduce(self, mark: str) -> list[Operator]:
        """A bucket's reduction on the stream of communication, and compute's wait for it."""
        parts, recipe = self.parts, self._recipe
        late = self._rng.expovariate(1.0 / recipe.late_ns) if recipe.late_ns and self._rng.random() < 0.7 else 0
        work = parts.work("kernel", ALL_REDUCE, recipe.reduce_ns, NCCL, late_ns=round(late))
        launch = parts.call("cudaLaunchKernelExC", 2 * recipe.launch_ns, works=(work,), stream=NCCL)
        calls = (parts.record(mark), parts.stream_wait(mark, NCCL), launch, parts.record(f"{mark}.done", NCCL))
        name = "torch::autograd::AccumulateGrad"
        wait = parts.operator("", "reduced", (parts.stream_wait(f"{mark}.done", COMPUTE),))
        wait = replace(wait, backward=True, gap_ns=parts.about(2 * US, 0.3))
        return [parts.backward(name, "c10d::allreduce_", calls, "reduce"), wait]

    # -- optimizer ---------------------------------------------------------------------------------------------------

    def _update(self) -> list[Operator]:
        recipe, parts = self._recipe, self.parts
        name = POINTWISE.format("BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >")
        small = [parts.launch(parts.kernel(name, 2.2 * US, False)) for _ in range(recipe.small)]
        made = [parts.item()] if 1.5 in recipe.items else []
        made += [replace(parts.operator("aten::mul_", "small", (call,)), inside=STEP) for call in small]
        kernel = parts.kernel(POINTWISE.format("FusedAdamMathFunctor<float>"), 2.0 * recipe.kernel_ns, True)
        fused = parts.operator("aten::_fused_adamw_", "update", (parts.launch(kernel),))
        made.append(replace(fused, inside=STEP))
        zeros = [parts.work("memset", "Memset (Device)", 1.5 * US, size_bytes=1 << 20) for _ in range(recipe.zeroed)]
        made += [parts.operator("aten::zero_", "zero", (parts.fill(work),)) for work in zeros]
        made[0] = replace(made[0], gap_ns=made[0].gap_ns + parts.about(HAND_OVER_NS, 0.3))
        return made
