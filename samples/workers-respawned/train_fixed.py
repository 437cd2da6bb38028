"""Forecasts the load of a power grid a day ahead, in many short epochs."""

import math

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

HOURS, PAST, AHEAD = 900, 336, 24


class Grid(Dataset):
    """Windows of an hourly load curve, and the day that follows each."""

    def __init__(self):
        hour = torch.arange(HOURS + PAST + AHEAD)
        daily, weekly = torch.sin(hour * 2 * math.pi / 24), torch.cos(hour * 2 * math.pi / 168)
        self.load = daily + 0.5 * weekly + 0.1 * torch.randn(len(hour))

    def __len__(self):
        return HOURS

    def __getitem__(self, hour):
        window = self.load[hour : hour + PAST + AHEAD]
        return window[:PAST] - window[:PAST].mean(), window[PAST:] - window[:PAST].mean()


class Forecaster(torch.nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inside = torch.nn.Conv1d(1, width, 24, stride=4)
        self.middle = torch.nn.Conv1d(width, width, 9, padding=4)
        self.outside = torch.nn.Linear(width, AHEAD)

    def forward(self, past):
        seen = torch.nn.functional.gelu(self.inside(past[:, None]))
        return self.outside(torch.nn.functional.gelu(self.middle(seen)).mean(-1))


def train():
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    grid = Grid()
    loader = DataLoader(
        grid,
        batch_size=128,
        sampler=RandomSampler(grid, generator=torch.Generator().manual_seed(0)),
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
        pin_memory=cuda,
    )
    model = Forecaster().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(12):
        for past, ahead in loader:
            past, ahead = past.to(device, non_blocking=True), ahead.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
                loss = torch.nn.functional.mse_loss(model(past), ahead)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    train()
