"""A step of a plain network, large enough that the GPU is never waiting: nothing is wrong with it."""

from __future__ import annotations

from tests.synthetic import LONG, Tensor, Torch

WIDTH, LAYERS, BATCH = 4096, 6, 8192


def forward(torch: Torch, weights: list[Tensor], x: Tensor) -> Tensor:
    with torch.autocast("c10::BFloat16"):
        for number, weight in enumerate(weights):
            with torch.host.module(f"layers.{number}", "Linear"):
                x = torch.linear(x, weight)
            x = torch.pointwise("gelu", x)
    return x


def training_step(torch: Torch, weights: list[Tensor], optimizer: object, x: Tensor, y: Tensor) -> Tensor:
    loss = torch.cross_entropy(forward(torch, weights, x), y)
    optimizer.zero_grad()
    torch.backward(loss)
    optimizer.step()
    return loss


def healthy(torch: Torch) -> None:
    weights = [Tensor((WIDTH, WIDTH), parameter=True) for _ in range(LAYERS)]
    optimizer = torch.AdamW(weights, style="fused")
    loader = torch.DataLoader([((BATCH, WIDTH), "c10::BFloat16"), ((BATCH,), LONG)])
    for x, y in loader:
        x, y = torch.cuda(x, non_blocking=True), torch.cuda(y, non_blocking=True)
        torch.item(training_step(torch, weights, optimizer, x, y))  # the GPU has work until then: costs next to nothing
