"""Separates two summed tones: a one-dimensional convolutional autoencoder, trained by a small class."""

import math

import torch
from torch import nn

RATE, SAMPLES = 2000, 512


def stage(channels_in, channels_out, stride, up=False):
    if up:
        convolution = nn.ConvTranspose1d(channels_in, channels_out, 4, stride=stride, padding=1)
    else:
        convolution = nn.Conv1d(channels_in, channels_out, 4, stride=stride, padding=1)
    return nn.Sequential(convolution, nn.BatchNorm1d(channels_out), nn.LeakyReLU(0.1))


class Separator(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(stage(1, 24, 2), stage(24, 48, 2), stage(48, 64, 2))
        self.up = nn.Sequential(stage(64, 48, 2, up=True), stage(48, 24, 2, up=True))
        self.tones = nn.ConvTranspose1d(24, 2, 4, stride=2, padding=1)

    def forward(self, mixture):
        return self.tones(self.up(self.down(mixture)))


class Fit:
    def __init__(self, device):
        self.device = device
        self.model = Separator().to(device)
        self.optimizer = torch.optim.Adamax(self.model.parameters(), lr=5e-3)

    def tones(self, batch=48):
        time = torch.arange(SAMPLES, device=self.device) / RATE
        low = 40 + 60 * torch.rand(batch, 1, device=self.device)
        high = 200 + 300 * torch.rand(batch, 1, device=self.device)
        return torch.stack([torch.sin(2 * math.pi * pitch * time) for pitch in (low, high)], dim=1)

    def step(self):
        both = self.tones()
        loss = (self.model(both.sum(1, keepdim=True)) - both).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


if __name__ == "__main__":
    torch.manual_seed(0)
    fit = Fit("cuda" if torch.cuda.is_available() else "cpu")
    for _ in range(40):
        loss = fit.step()
    print(f"loss {loss.item():.3f}")
