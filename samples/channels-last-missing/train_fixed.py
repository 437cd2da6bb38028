"""Counts the bright spots in noisy images with a small channels_last network that attends to channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LAYOUT = torch.channels_last
SIZE, SPOTS = 40, 6


class ChannelGate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.score = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x * self.score(F.adaptive_avg_pool2d(x, 1)).sigmoid()


class SpotCounter(nn.Module):
    def __init__(self, widths=(16, 24, 32)):
        super().__init__()
        stages, before = [], 1
        for width in widths:
            stages += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(), ChannelGate(width)]
            before = width
        self.stages = nn.Sequential(*stages)
        self.count = nn.Linear(before, SPOTS + 1)

    def forward(self, images):
        return self.count(self.stages(images).amax((2, 3)))


def images(batch, generator):
    """Noise with up to SPOTS bright pixels, and how many of them."""
    noise = 0.1 * torch.randn(batch, 1, SIZE, SIZE, generator=generator)
    number = torch.randint(SPOTS + 1, (batch,), generator=generator)
    order = torch.rand(batch, SIZE * SIZE, generator=generator).argsort(dim=1).argsort(dim=1)
    return noise + (order < number[:, None]).view_as(noise), number


def fit(steps=24, batch=24):
    torch.manual_seed(3)
    torch.set_float32_matmul_precision("high")
    model = SpotCounter().to(DEVICE, memory_format=LAYOUT)
    optimizer = torch.optim.RAdam(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(4)
    for _ in range(steps):
        x, number = images(batch, generator)
        loss = F.cross_entropy(model(x.to(DEVICE, memory_format=LAYOUT)), number.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print(f"loss {fit():.3f}")
