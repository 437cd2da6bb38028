"""A deep, narrow residual network that learns the distance between two points on a sphere."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + nn.functional.silu(self.inner(self.norm(x)))


def build_network(width=40, depth=32):
    return nn.Sequential(nn.Linear(6, width), *(Residual(width) for _ in range(depth)), nn.Linear(width, 1))


def build_optimizer(network):
    return torch.optim.AdamW(
        network.parameters(),
        lr=2e-3,
        weight_decay=0.01,
        foreach=False,
    )


def pairs(count, device):
    points = nn.functional.normalize(torch.randn(count, 2, 3, device=device), dim=-1)
    angle = torch.acos((points[:, 0] * points[:, 1]).sum(-1).clamp(-1, 1))
    return points.flatten(1), angle


def train(steps=40, device="cuda" if torch.cuda.is_available() else "cpu"):
    torch.manual_seed(3)
    network = build_network().to(device)
    optimizer = build_optimizer(network)
    losses = []
    for _ in range(steps):
        points, angle = pairs(64, device)
        loss = nn.functional.mse_loss(network(points).squeeze(-1), angle)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    first, *_, last = torch.stack(losses).tolist()
    print(f"first loss {first:.3f}, last loss {last:.3f}")


train()
