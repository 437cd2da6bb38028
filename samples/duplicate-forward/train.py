"""Predicts the next hours of a power grid's load; the loop keeps the mean absolute error in megawatts as it goes."""

from math import tau

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAST, FUTURE, REGIONS, MEGAWATTS = 96, 24, 8, 1500.0


class Forecast(nn.Module):
    """Mixes hours, then regions, with a residual path for the last day."""

    def __init__(self, width=640):
        super().__init__()
        self.hours = nn.Sequential(nn.Linear(PAST, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.regions = nn.Conv1d(REGIONS, REGIONS, kernel_size=1)
        self.out = nn.Linear(width, FUTURE)

    def forward(self, past):
        return past[..., -FUTURE:] + self.out(self.regions(self.hours(past)))


def windows(count, hours_a_day=24):
    """Daily waves with a region's own phase, and noise."""
    start = torch.rand(count, 1, 1, device=DEVICE) * 1000
    hour = start + torch.arange(PAST + FUTURE, device=DEVICE)
    phase = torch.linspace(0, 1, REGIONS, device=DEVICE).view(1, REGIONS, 1)
    load = torch.sin(tau * (hour / hours_a_day + phase)) + 0.1 * torch.randn(
        count, REGIONS, PAST + FUTURE, device=DEVICE
    )
    return load[..., :PAST], load[..., PAST:]


def error_in_megawatts(predicted, future):
    return (predicted - future).abs().mean() * MEGAWATTS


def train(steps=40):
    model = Forecast().to(DEVICE)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-4)
    errors = torch.zeros(steps, device=DEVICE)
    for step in range(steps):
        past, future = windows(64)
        predicted = model(past)
        loss = nn.functional.smooth_l1_loss(predicted, future)
        with torch.no_grad():
            errors[step] = error_in_megawatts(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return errors


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")
    first, *_, last = train().view(-1, 10).mean(dim=1).tolist()
    print(f"mean error of the first and last ten steps: {first:.0f} MW, {last:.0f} MW")
