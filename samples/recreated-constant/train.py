"""Forecasts the next hours of an electric load curve from the last days of it, with a small gated convolution."""

import math

import torch
from torch import Tensor, nn

CONTEXT, AHEAD, PERIODS = 168, 24, (24.0, 168.0)


class Forecaster(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1 + 2 * len(PERIODS), 2 * width, kernel_size=5, padding=2)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, 2 * width, kernel_size=5, padding=2 * step, dilation=step) for step in (1, 2, 4)
        )
        self.leave = nn.Linear(width, AHEAD)

    def forward(self, load: Tensor) -> Tensor:
        hour = torch.arange(load.shape[1], dtype=torch.float32).to(load.device)
        phases = torch.stack([wave(hour * (2 * math.pi / p)) for p in PERIODS for wave in (torch.sin, torch.cos)])
        features = torch.cat([load.unsqueeze(1), phases.expand(len(load), -1, -1)], dim=1)
        hidden = nn.functional.glu(self.enter(features), dim=1)
        for layer in self.layers:
            hidden = hidden + nn.functional.glu(layer(hidden), dim=1)
        return self.leave(hidden[:, :, -1])


def curves(count: int, device: torch.device) -> Tensor:
    """Load curves with a daily and a weekly rhythm, each shifted at random."""
    hours = torch.arange(CONTEXT + AHEAD, device=device) + 168 * torch.rand(count, 1, device=device)
    rhythm = sum(torch.sin(hours * (2 * math.pi / period)) for period in PERIODS)
    return rhythm + 0.2 * torch.randn(count, CONTEXT + AHEAD, device=device)


def main() -> None:
    torch.manual_seed(5)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    torch.set_float32_matmul_precision("high")
    series = curves(1024, device)
    model = Forecaster().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    loss_of = nn.HuberLoss()
    for epoch in range(2):
        for batch in series[torch.randperm(len(series), device=device)].split(64):
            loss = loss_of(model(batch[:, :CONTEXT]), batch[:, CONTEXT:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
