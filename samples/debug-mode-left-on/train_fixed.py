"""Solves the heat equation on a rod with a physics-informed network: no data, only the equation's residual."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Settings:
    points: int = 2048
    width: int = 96
    layers: int = 4
    steps: int = 60
    conductivity: float = 0.1
    find_nan: bool = False


class Rod(nn.Module):
    """Temperature at place x and time t, as a smooth function of both."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        sizes = [2] + [width] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = torch.stack((x, t), dim=-1)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h).squeeze(-1)


def residual(rod: Rod, x: Tensor, t: Tensor, conductivity: float) -> Tensor:
    x, t = x.requires_grad_(), t.requires_grad_()
    u = rod(x, t)
    u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return (u_t - conductivity * u_xx).square().mean()


def main(use: Settings) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(5)
    rod = Rod(use.width, use.layers).to(device)
    adam = torch.optim.Adam(rod.parameters(), lr=2e-3, fused=True)
    history = torch.zeros(use.steps, device=device)
    for step in range(use.steps):
        x, t, start = torch.rand(3, use.points, device=device).unbind()
        with torch.autograd.detect_anomaly(check_nan=True) if use.find_nan else nullcontext():
            begins = (rod(start, torch.zeros_like(start)) - torch.sin(math.pi * start)).square().mean()
            loss = residual(rod, x, t, use.conductivity) + 10 * begins
            adam.zero_grad()
            loss.backward()
        adam.step()
        history[step] = loss.detach()
    print("loss", " ".join(f"{value:.4f}" for value in history[:: use.steps // 6].tolist()))


if __name__ == "__main__":
    main(Settings())
