"""Small layers, a read in every step, a copy from pageable memory and an explicit wait: every kind of call."""

from __future__ import annotations

from tests.synthetic import FLOAT, LONG, Tensor, Torch

WIDTH, LAYERS, BATCH = 256, 4, 64


def forward(torch: Torch, weights: list[Tensor], x: Tensor) -> Tensor:
    for number, weight in enumerate(weights):
        with torch.host.module(f"layers.{number}", "Linear"):
            x = torch.linear(x, weight)
        x = torch.pointwise("relu", x)
    return x


def training_step(torch: Torch, weights: list[Tensor], optimizer: object, x: Tensor, y: Tensor) -> Tensor:
    loss = torch.cross_entropy(forward(torch, weights, x), y)
    optimizer.zero_grad()
    torch.backward(loss)
    optimizer.step()
    return loss


def report(torch: Torch, loss: Tensor) -> None:
    torch.item(loss)
    torch.synchronize()


def train(torch: Torch) -> None:
    weights = [Tensor((WIDTH, WIDTH), parameter=True) for _ in range(LAYERS)]
    optimizer = torch.SGD(weights, style="loop")
    loader = torch.DataLoader([((BATCH, WIDTH), FLOAT), ((BATCH,), LONG)], workers=0, make_ns=300_000, pin_memory=False)
    for x, y in loader:
        report(torch, training_step(torch, weights, optimizer, torch.cuda(x), torch.cuda(y)))
