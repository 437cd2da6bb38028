"""Loaders, optimizers and data-parallel training around the operators: the ranges that torch itself writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Protocol

from tests.synthetic import kernels
from tests.synthetic.hardware import ELEMENT_BYTES, MS, US, Kernel
from tests.synthetic.host import Place
from tests.synthetic.machine import NCCL_STREAM
from tests.synthetic.tensors import Tensor
from tests.synthetic.transfers import Transfers

_LIST = 64
"""Tensors that a foreach kernel takes at once."""


_OPERATORS = {
    "AdamW": ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"),
    "SGD": ("mul_", "add_", "add_"),
}
"""What an update consists of, one kernel each."""


class Watch(Protocol):
    """Who wants to know what the loop does; `goes_on` says whether there is another step."""

    def batch(self, loader: DataLoader, begun_ns: int, position: int) -> None: ...
    def optimizer_step(self, begun_ns: int) -> None: ...
    def asks_for_batch(self) -> None: ...
    def goes_on(self) -> bool: ...


class DataLoader:
    """`torch.utils.data.DataLoader` of made-up batches.

    Args:
        torch: the machine.
        shapes: shape and dtype of each tensor of a batch.
        workers: worker processes.
        make_ns: how long one process makes a batch.
        pin_memory: batches come pinned, from a thread.
    """

    def __init__(
        self,
        torch: Transfers,
        shapes: Sequence[tuple[tuple[int, ...], str]],
        workers: int = 2,
        make_ns: float = 1 * MS,
        pin_memory: bool = True,
    ) -> None:
        self._torch, self._shapes, self.workers, self.make_ns = torch, shapes, workers, make_ns
        self.pin_memory = pin_memory
        self.place: Place | None = torch.host.place()
        self.loop: Place | None = None
        self.watch: Watch | None = None

    def __iter__(self) -> Iterator[list[Tensor]]:
        self.loop = self._torch.host.place()
        position = 0
        ready = [self._torch.host.now + round(self.make_ns * (1 + n // self.workers)) for n in range(2 * self.workers)]
        while self.watch is None or self.watch.goes_on():
            if self.watch is not None:
                self.watch.asks_for_batch()
                if not self.watch.goes_on():
                    return
            begun = self._torch.host.now
            yield_me = self._next(ready, position)
            if self.watch is not None:
                self.watch.batch(self, begun, position)
            position += 1
            yield yield_me

    def _next(self, ready: list[int], position: int) -> list[Tensor]:
        host = self._torch.host
        kind = "_MultiProcessingDataLoaderIter" if self.workers else "_SingleProcessDataLoaderIter"
        with host.inside("torch/utils/data/dataloader.py(720): __next__"):
            with host.op(f"enumerate(DataLoader)#{kind}.__next__", "user_annotation"):
                if self.workers:
                    host.now = max(host.now + 30 * US, ready[position])
                    last = ready[-self.workers]
                    ready.append(max(host.now, last) + host.jitter(self.make_ns))
                else:
                    host.think(self.make_ns * 0.8)
                    with self._torch.op("aten::stack", [Tensor(self._shapes[0][0], self._shapes[0][1], "cpu")]):
                        host.think(self.make_ns * 0.2)
        pinned = self.pin_memory
        return [Tensor(shape, dtype, "cpu", pinned=pinned) for shape, dtype in self._shapes]


class Optimizer:
    """AdamW or SGD with momentum, as a loop over parameters, foreach or fused.

    Args:
        torch: the machine.
        parameters: what it updates.
        kind: AdamW or SGD.
        style: loop, foreach or fused.
    """

    def __init__(
        self, torch: Transfers, parameters: Sequence[Tensor], kind: str = "AdamW", style: str = "foreach"
    ) -> None:
        self._torch, self._parameters, self._kind, self._style = torch, list(parameters), kind, style
        self.watch: Watch | None = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or fills them with zeros."""
        host = self._torch.host
        with host.inside("torch/optim/optimizer.py(1013): zero_grad"):
            with host.op(f"Optimizer.zero_grad#{self._kind}.zero_grad", "user_annotation"):
                for parameter in self._parameters:
                    if set_to_none:
                        parameter.grad = False
                    elif parameter.grad:
                        self._torch.fill_(parameter)

    def step(self) -> None:
        """One update."""
        host = self._torch.host
        begun = host.now
        with host.inside("torch/optim/optimizer.py(506): wrapper"):
            with host.op(f"Optimizer.step#{self._kind}.step", "user_annotation"):
                with host.inside(f"torch/optim/{self._kind.lower()}.py(220): step"):
                    host.think(25 * US)
                    {"loop": self._loop, "foreach": self._foreach, "fused": self._fused}[self._style]()
        if self.watch is not None:
            self.watch.optimizer_step(begun)

    def _loop(self) -> None:
        torch = self._torch
        for one in self._parameters:
            for name in _OPERATORS[self._kind]:
                with torch.op(f"aten::{name}", [one, one], grad=False):
                    torch.machine.launch(kernels.pointwise(name.rstrip("_"), [one, one], one))

    def _lists(self) -> Iterator[tuple[int, int]]:
        for at in range(ceil(len(self._parameters) / _LIST)):
            some = self._parameters[at * _LIST : (at + 1) * _LIST]
            yield sum(one.elements for one in some), len(some)

    def _foreach(self) -> None:
        torch = self._torch
        for name in _OPERATORS[self._kind]:
            with torch.op(f"aten::_foreach_{name}", [self._parameters], grad=False):
                for elements, _ in self._lists():
                    torch.machine.launch(kernels.tensor_list("BinaryOpScalarFunctor", elements, 3, 2))

    def _fused(self) -> None:
        torch, name = self._torch, f"aten::_fused_{self._kind.lower()}_"
        with torch.op(name, [self._parameters], grad=False):
            for elements, _ in self._lists():
                functor = "FusedAdamMathFunctor" if self._kind == "AdamW" else "FusedSgdMathFunctor"
                torch.machine.launch(kernels.tensor_list(functor, elements, 7 if self._kind == "AdamW" else 5, 4))


class DistributedDataParallel:
    """Reduces gradients bucket by bucket while backward runs; the step waits for the last one.

    Args:
        torch: the machine.
        parameters: what is trained.
        bucket_bytes: size of a bucket.
        ranks: size of the group.
        dtype: of what is sent.
        overlap: reduce each bucket as soon as it is full; all of them when backward is done otherwise.
    """

    def __init__(
        self,
        torch: Transfers,
        parameters: Sequence[Tensor],
        bucket_bytes: int = 25 * 2**20,
        ranks: int = 8,
        dtype: str = "float",
        overlap: bool = True,
    ) -> None:
        self._torch, self._bucket_bytes, self._ranks, self._dtype, self._overlap = (
            torch,
            bucket_bytes,
            ranks,
            dtype,
            overlap,
        )
        self._full, self._left = 0, len(parameters)
        self._parameters = len(parameters)
        self._later: list[int] = []
        torch.accumulated.append(self._ready)
        torch.finished.append(self._finish)

    def _ready(self, parameter: Tensor) -> None:
        self._full += parameter.elements
        self._left -= 1
        if self._full * ELEMENT_BYTES[self._dtype] >= self._bucket_bytes or not self._left:
            if self._overlap:
                self._reduce(self._full)
            else:
                self._later.append(self._full)
            self._full = 0

    def _reduce(self, elements: int) -> None:
        self._torch.collective("allreduce", elements, self._dtype, self._ranks, wait=False)

    def _finish(self) -> None:
        for elements in self._later:
            self._reduce(elements)
        self._later, self._left = [], self._parameters
        self._torch.machine.wait_event(self._torch.machine.record_event(NCCL_STREAM))


def triton(names: Sequence[str], elements: int, moved_bytes: float) -> list[Kernel]:
    """Kernels that Inductor made."""
    return [Kernel(name, 0.0, moved_bytes, blocks=max(1, elements // 1024)) for name in names]
