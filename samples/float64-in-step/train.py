"""Fits a regression on tabular data with random Fourier features.

usage: python train.py [--steps N] [--batch-size N] [--bands N] [--lr LR]
"""

import argparse

import numpy as np
import torch
from torch import nn

COLUMNS = 12


class FourierRegressor(nn.Module):
    """cos(x f + p) with fixed random f and p, then an MLP."""

    def __init__(self, bands, hidden=320):
        super().__init__()
        rng = np.random.default_rng(0)
        self.register_buffer("frequency", torch.from_numpy(rng.normal(0, 2, (COLUMNS, bands))))
        self.register_buffer("phase", torch.from_numpy(rng.uniform(0, 2 * np.pi, (COLUMNS, bands))))
        self.mlp = nn.Sequential(
            nn.Linear(COLUMNS * bands, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )

    def forward(self, table):
        features = torch.cos(table.unsqueeze(-1) * self.frequency + self.phase).flatten(1).float()
        return self.mlp(features).squeeze(-1)


def synthetic_table(rows, device):
    table = torch.rand(rows, COLUMNS, device=device)
    target = torch.sin(9 * table[:, 0]) + table[:, 1] * table[:, 2] + 0.1 * torch.randn(rows, device=device)
    return table, target


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--bands", type=int, default=48)
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table, target = synthetic_table(args.steps * args.batch_size, device)
    model = FourierRegressor(args.bands).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for rows, wanted in zip(table.split(args.batch_size), target.split(args.batch_size), strict=True):
        loss = nn.functional.mse_loss(model(rows), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"mse {loss.item():.4f}")


if __name__ == "__main__":
    main()
