"""What makes host and device meet: copies, reads of values, synchronisation, events and the allocator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.synthetic import kernels
from tests.synthetic.device import Activity
from tests.synthetic.hardware import MS, US, Kernel
from tests.synthetic.machine import COPY_STREAM, NCCL_STREAM
from tests.synthetic.operators import Operators
from tests.synthetic.tensors import FLOAT, LONG, Tensor

_HOST_BYTES_PER_S = 8e9
"""What one core moves when it fills or copies host memory."""


class Transfers(Operators):
    """torch.cuda and the copies of tensors."""

    # -- copies --------------------------------------------------------------------------------------------------

    def cuda(self, x: Tensor, non_blocking: bool = False) -> Tensor:
        """`x.to("cuda")`: a blocking copy is followed by a wait for its stream."""
        out = Tensor(x.shape, x.dtype, "cuda", channels_last=x.channels_last)
        waits = not (non_blocking and x.pinned)
        with self.op("aten::to", [x, "", "", "cuda:0"]), self.op("aten::_to_copy", [x, "", "", "cuda:0"]):
            with self.op("aten::empty_strided", [str(list(x.shape))]):
                pass
            with self.op("aten::copy_", [out, x, str(non_blocking)]):
                self.machine.copy("h2d", x.nbytes, pageable=not x.pinned)
                if waits and not non_blocking:
                    self.machine.synchronize(self.machine.stream)
        return out

    def cpu(self, x: Tensor, pinned: bool = False) -> Tensor:
        """`x.cpu()`: waits until everything before it and the copy are done."""
        out = Tensor(x.shape, x.dtype, "cpu", pinned=pinned)
        with self.op("aten::to", [x, "", "", "cpu"]), self.op("aten::_to_copy", [x, "", "", "cpu"]):
            with self.op("aten::copy_", [out, x, "False"]):
                self.machine.copy("d2h", x.nbytes, pageable=not pinned)
                self.machine.synchronize(self.machine.stream)
        return out

    def cpu_async(self, x: Tensor) -> int:
        """`x.to("cpu", non_blocking=True)` into pinned memory; gives an event to look at later."""
        with self.op("aten::to", [x, "", "", "cpu"]), self.op("aten::_to_copy", [x, "", "", "cpu"]):
            with self.op("aten::copy_", [Tensor(x.shape, x.dtype, "cpu", pinned=True), x, "True"]):
                self.machine.copy("d2h", x.nbytes, pageable=False)
        return self.machine.record_event()

    def item(self, x: Tensor) -> float:
        """`x.item()`."""
        with self.op("aten::item", [x]), self.op("aten::_local_scalar_dense", [x]):
            self.machine.copy("d2h", x.nbytes, pageable=False)
            self.machine.synchronize(self.machine.stream)
        return 0.5

    def nonzero(self, x: Tensor, share: float = 0.5) -> Tensor:
        """`x.nonzero()`: the result's size has to come to the host first."""
        with self.op("aten::nonzero", [x]):
            self.machine.launch(kernels.reduction(x, 1))
            self.machine.copy("d2h", 8, pageable=False)
            self.machine.synchronize(self.machine.stream)
            out = Tensor((max(1, round(x.elements * share)), len(x.shape)), LONG)
            self.machine.launch(kernels.loop_copy(out.nbytes, out.elements))
        return out

    def tensor(self, values: list[float], device: str = "cpu", dtype: str = FLOAT) -> Tensor:
        """`torch.tensor([…], device=…)`: built in pageable host memory, then copied."""
        made = Tensor((len(values),), dtype, "cpu")
        with self.op("aten::empty", [f"[{len(values)}]"]):
            self.host.think(400 + 30 * len(values))
        made = made if device == "cpu" else self.cuda(made)
        with self.op("aten::lift_fresh", [made]):
            pass
        with self.op("aten::detach_", [made]):
            pass
        return made

    def numpy_work(self, x: Tensor, ns: float = 50 * US) -> Tensor:
        """Something that numpy does to a tensor in host memory."""
        self.host.think(ns + x.nbytes / _HOST_BYTES_PER_S * 1e9)
        return Tensor(x.shape, x.dtype, "cpu")

    def pin_memory(self, x: Tensor) -> Tensor:
        """`x.pin_memory()`: a copy into pinned memory that the allocator keeps."""
        with self.op("aten::pin_memory", [x]), self.op("aten::_pin_memory", [x]):
            self.host.think(20 * US + x.nbytes / _HOST_BYTES_PER_S * 1e9)
        return Tensor(x.shape, x.dtype, "cpu", pinned=True)

    # -- torch.cuda ----------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """`torch.cuda.synchronize()`."""
        self.host.think(self.host.costs.python)
        self.host.touch()
        with self.host.inside("torch/cuda/__init__.py(1065): synchronize"):
            self.host.touch()
            self.machine.synchronize()

    def empty_cache(self, blocks: int = 8) -> None:
        """`torch.cuda.empty_cache()`: gives blocks back, each after a wait for the device."""
        with self.host.inside("torch/cuda/memory.py(160): empty_cache"):
            self.host.touch()
            self.machine.synchronize()
            for _ in range(blocks):
                self.machine.free()

    def allocate(self, moved_bytes: int) -> None:
        """An operator that finds no memory in the cache."""
        with self.op("aten::empty", [f"[{moved_bytes // 4}]"]):
            self.machine.malloc(moved_bytes)

    def collect_garbage(self, ns: float = 8 * MS) -> None:
        """`gc.collect()`."""
        self.host.touch()
        self.host.think(ns)

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        """`with torch.cuda.stream(copies)`."""
        before, self.machine.stream = self.machine.stream, COPY_STREAM
        try:
            yield
        finally:
            self.machine.stream = before

    def wait_for_copies(self) -> None:
        """`torch.cuda.current_stream().wait_stream(copies)`."""
        self.machine.wait_event(self.machine.record_event(COPY_STREAM))

    def graph_replay(self, launched: list[Kernel]) -> None:
        """`graph.replay()`."""
        with self.host.inside("torch/cuda/graphs.py(150): replay"):
            self.host.think(self.host.costs.python)
            self.host.touch()
            self.machine.graph(launched)

    # -- torch.distributed ---------------------------------------------------------------------------------------

    def collective(
        self, name: str, elements: int, dtype: str = FLOAT, ranks: int = 8, late_ns: int = 0, wait: bool = True
    ) -> Activity:
        """A collective on NCCL's stream, behind what the current stream has done.

        Args:
            name: allreduce, all_gather, reduce_scatter, …
            elements: how many this rank sends.
            dtype: their dtype.
            ranks: size of the group.
            late_ns: how long it waits for the last rank.
            wait: the current stream waits for it (`work.wait()`).
        """
        x = Tensor((elements,), dtype)
        rate = self.machine.device.gpu.link_bytes_per_s
        dur = 12 * US + round(2 * (ranks - 1) / ranks * x.nbytes / rate * 1e9) + late_ns
        said = {
            "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, "Group size": ranks,
            "dtype": "BFloat16" if dtype != FLOAT else "Float", "In split size": "[]", "Out split size": "[]",
            "Process Group Name": "0", "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(ranks))),
        }  # fmt: skip
        with self.op(f"c10d::{name}_", [[x], "", "0"]):
            with self.host.op("record_param_comms", **said):
                self.machine.wait_event(self.machine.record_event(), NCCL_STREAM)
                with self.host.op(f"nccl:{name}", "user_annotation"):
                    pass
                kernel = Kernel(
                    f"ncclDevKernel_{name.title()}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                    blocks=24,
                    threads=512,
                )
                made = self.machine.launch(kernel, NCCL_STREAM, "cudaLaunchKernelExC", dur_ns=dur, fills=False, **said)
                done = self.machine.record_event(NCCL_STREAM)
        if wait:
            self.machine.wait_event(done)
        return made
