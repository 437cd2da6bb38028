"""A plain training loop on the synthetic machine, whose step is given: bfloat16, fused optimizer, copies ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.synthetic import BFLOAT16, LONG, Tensor, Torch

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

    @property
    def width(self) -> int:
        return WIDTH

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


def learn(
    torch: Torch,
    parameters: Iterable[Tensor],
    batch: tuple[int, ...],
    forward: Callable[[Tensor], Tensor],
    dtype: str = BFLOAT16,
    reads_loss: bool = True,
) -> None:
    """Trains any model: its output's mean is the loss, read at the end of each step so that the host stays near."""
    optimizer = torch.AdamW(list(parameters), style="fused")
    for x, _ in torch.DataLoader([(batch, dtype), ((batch[0],), LONG)]):
        with torch.copy_stream():
            x = torch.cuda(x, non_blocking=True)
        loss = torch.reduce("mean", forward(x))
        optimizer.zero_grad()
        torch.backward(loss)
        optimizer.step()
        if reads_loss:
            torch.item(loss)
