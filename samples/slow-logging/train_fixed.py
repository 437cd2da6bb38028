"""Tells five kinds of heart beats apart, and keeps a JSON file with the size of every layer's weights and gradients."""

import json
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

LOG_EVERY = 50


class History:
    """The run's numbers, in one file that a dashboard reads."""

    def __init__(self, path):
        self.path = path
        self.rows = []

    def add(self, step, loss, model):
        names = [name for name, _ in model.named_parameters()]
        weights = torch.stack(torch._foreach_norm([p.detach() for p in model.parameters()]))
        grads = torch.stack(torch._foreach_norm([p.grad for p in model.parameters()]))
        numbers = torch.cat([loss.detach().reshape(1), weights, grads]).tolist()
        layers = {
            name: {"weight": weight, "grad": grad}
            for name, weight, grad in zip(names, numbers[1:], numbers[1 + len(names) :], strict=False)
        }
        self.rows.append({"step": step, "loss": numbers[0], "layers": layers})
        with self.path.open("w") as file:
            json.dump(self.rows, file, indent=1)


def build(width=32, depth=6, kinds=5):
    layers = [nn.Conv1d(1, width, 7, stride=2, padding=3), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Conv1d(width, width, 5, padding=2), nn.GELU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(8 * width, kinds))


def beats(count, kinds=5, length=256):
    kind = torch.randint(0, kinds, (count,))
    at = torch.linspace(-1, 1, length)
    width = 0.03 + 0.02 * kind[:, None]
    wave = torch.exp(-((at / width) ** 2)) - 0.2 * kind[:, None] * torch.exp(-(((at - 0.4) / 0.1) ** 2))
    return (wave + 0.1 * torch.randn(count, length))[:, None], kind


def train(folder, steps=150, batch=16):
    torch.manual_seed(6)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    history = History(Path(folder) / "history.json")
    signals, kinds = (tensor.to(device) for tensor in beats(512))
    for step in range(steps):
        pick = torch.randint(0, len(signals), (batch,), device=device)
        loss = F.cross_entropy(model(signals[pick]), kinds[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % LOG_EVERY == 0:
            history.add(step, loss, model)
    return history.rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = train(folder)
    print(f"loss {rows[0]['loss']:.4f} at first, {rows[-1]['loss']:.4f} in step {rows[-1]['step']}")
