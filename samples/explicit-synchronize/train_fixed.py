"""Trains a mixture density network on a curve that has several answers for one question."""

import math

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class MixtureDensity(nn.Module):
    def __init__(self, parts=8, width=256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.Linear(width, 3 * parts)

    def loss(self, x, y):
        weight, mean, scale = self.heads(self.trunk(x)).chunk(3, dim=1)
        log_scale = scale.clamp(-6, 3)
        log_density = -0.5 * ((y - mean) / log_scale.exp()) ** 2 - log_scale - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(weight.log_softmax(1) + log_density, dim=1).mean()


def samples(count):
    y = 2 * torch.rand(count, 1, device=DEVICE) - 1
    return y + 0.3 * torch.sin(2 * math.pi * y) + 0.05 * torch.randn(count, 1, device=DEVICE), y


class Fit:
    def __init__(self, steps):
        self.steps = steps
        self.model = MixtureDensity().to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def step(self, x, y):
        loss = self.model.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self):
        for number in range(self.steps):
            loss = self.step(*samples(512))
        print(f"loss after {number + 1} steps: {loss.item():.3f}")


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(11)
    Fit(steps=40).run()
