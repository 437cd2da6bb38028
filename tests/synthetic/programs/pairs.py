"""One problem a program, and its healthy twin: the marked line is what the rule must name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.synthetic import BFLOAT16, FLOAT, LONG, MS, US, Tensor, Torch

WIDTH = 2048


class Training:
    """A step that keeps an A100 busy for some ten milliseconds: bfloat16, fused optimizer, inputs copied ahead."""

    def __init__(
        self, torch: Torch, dtype: str = BFLOAT16, style: str = "fused", layers: int = 16, **loader: Any
    ) -> None:
        self.torch, self.dtype = torch, dtype
        self.weights = [Tensor((WIDTH, WIDTH), dtype, parameter=True) for _ in range(layers)]
        self.optimizer = torch.AdamW(self.weights, style=style)
        self.loader = torch.DataLoader([((4096, WIDTH), dtype), ((4096,), LONG)], **loader)

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = self.torch.pointwise("relu", self.torch.linear(x, weight))
        return x

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.torch.cross_entropy(self.forward(x), y)

    def update(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        self.torch.backward(loss)
        self.optimizer.step()

    def ahead(self, batch: list[Tensor]) -> list[Tensor]:
        with self.torch.copy_stream():
            return [self.torch.cuda(one, non_blocking=True) for one in batch]


def train(torch: Torch, step: Callable[[Training, Tensor, Tensor], None], **options: Any) -> None:
    """The loop; copies run on a stream of their own, while the step before is computed."""
    training = Training(torch, **options)
    for batch in training.loader:
        x, y = training.ahead(batch)
        step(training, x, y)


def plain(t: Training, x: Tensor, y: Tensor) -> None:
    loss = t.loss(x, y)
    t.update(loss)
    t.torch.item(loss)


def read_after_the_loss(t: Training, x: Tensor, y: Tensor) -> None:
    small = t.torch.view(x, (32, WIDTH))
    for _ in range(3):
        small = t.torch.reduce("sum", t.forward(small), (32, WIDTH))
        t.torch.item(small)  # problem: GD301
    t.update(t.torch.reduce("mean", small))


def copying(torch: Torch, pin_memory: bool, non_blocking: bool) -> None:
    training = Training(torch, pin_memory=pin_memory, layers=2)
    for x, y in training.loader:
        copied(training, x, y, non_blocking)


def copied(t: Training, x: Tensor, y: Tensor, non_blocking: bool) -> None:
    x = t.torch.cuda(x, non_blocking)  # problem: GD302 GD303
    plain(t, x, t.torch.cuda(y, non_blocking))


def storm(t: Training, x: Tensor, y: Tensor) -> None:
    state = Tensor((256,))
    for _ in range(150):
        state = t.torch.pointwise("add", t.torch.pointwise("mul", state))  # problem: GD201
    plain(t, x, y)


def launches(torch: Torch, batch: int) -> None:
    weights = [Tensor((512, 512), BFLOAT16, parameter=True) for _ in range(40)]
    optimizer = torch.AdamW(weights, style="fused")
    for x, _ in torch.DataLoader([((batch, 512), BFLOAT16), ((batch,), LONG)]):
        with torch.copy_stream():
            x = torch.cuda(x, non_blocking=True)
        for weight in weights:
            torch.host.think(60 * US)  # a module with much Python around little work
            x = torch.linear(x, weight)
        loss = torch.reduce("mean", x)
        optimizer.zero_grad()
        torch.backward(loss)
        optimizer.step()


def reducing(torch: Torch, bucket_bytes: int, overlap: bool) -> None:
    training = Training(torch)
    torch.DistributedDataParallel(training.weights, bucket_bytes=bucket_bytes, overlap=overlap)
    for batch in training.loader:
        plain(training, *training.ahead(batch))


PAIRS: dict[str, tuple[Callable[[Torch], None], Callable[[Torch], None]]] = {
    "GD201": (partial(train, step=storm), partial(train, step=plain)),
    "GD202": (partial(launches, batch=4096), partial(launches, batch=65_536)),
    "GD203": (partial(train, step=plain, style="loop"), partial(train, step=plain)),
    "GD301": (partial(train, step=read_after_the_loss), partial(train, step=plain)),
    "GD302": (partial(copying, pin_memory=False, non_blocking=False), partial(train, step=plain)),
    "GD303": (partial(copying, pin_memory=True, non_blocking=False), partial(train, step=plain)),
    "GD401": (partial(train, step=plain, dtype=FLOAT), partial(train, step=plain)),
    "GD402": (partial(train, step=plain, dtype=FLOAT), partial(train, step=plain)),
    "GD601": (partial(train, step=plain, workers=1, make_ns=40 * MS), partial(train, step=plain)),
    "GD801": (partial(reducing, bucket_bytes=2**30, overlap=False), partial(train, step=plain)),
}
"""By rule: the problem and its twin."""
