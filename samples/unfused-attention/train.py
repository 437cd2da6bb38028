"""Learns to continue sine waves: a small causal transformer that reads a wave and predicts its next value."""

import math

import torch
from torch import nn
from torch.nn import functional as F

LENGTH, HEADS, WIDTH = 256, 4, 64
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class CausalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = self.attend(q, k, v)
        return self.join(y.transpose(1, 2).flatten(2))

    def attend(self, q, k, v):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        weights = F.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1)
        return weights @ v


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.before = CausalAttention(), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(x)


def waves(count):
    """Values of sine waves with random frequency and phase, one more than the model reads."""
    frequency, phase = 0.05 + 0.2 * torch.rand(2, count, 1, device=DEVICE)
    return torch.sin(frequency * torch.arange(LENGTH + 1, device=DEVICE) + 20 * phase)


torch.manual_seed(11)
model = nn.Sequential(nn.Linear(1, WIDTH), Layer(), Layer(), nn.Linear(WIDTH, 1)).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
running = torch.zeros((), device=DEVICE)
for batch in range(1, 31):
    wave = waves(4)
    loss = F.mse_loss(model(wave[:, :-1, None]).squeeze(-1), wave[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running += loss.detach()
    if batch % 15 == 0:
        print(f"batch {batch}: loss {running.item() / 15:.3f}")
        running.zero_()
