"""Predicts the next frame of a multi-channel sensor signal with a gated mixer, all in bfloat16."""

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, FRAMES, WIDTH, HIDDEN = 32, 96, 192, 384
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def stable(function, x, *args):
    """Applies an operator that sums or exponentiates."""
    return function(x, *args)


class GatedMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2 * HIDDEN)
        self.out = nn.Linear(HIDDEN, WIDTH)
        self.shift = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        x = torch.lerp(x, x.roll(1, dims=1), self.shift)
        value, gate = self.gate(stable(F.layer_norm, x, (WIDTH,))).chunk(2, dim=-1)
        return x + self.out(value * stable(F.silu, gate))


def signals(count):
    phase = torch.rand(count, 1, CHANNELS) * 6.28
    speed = torch.linspace(0.02, 0.4, CHANNELS)
    time = torch.arange(FRAMES + 1).view(1, -1, 1)
    return torch.sin(phase + speed * time).to(device, torch.bfloat16)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(CHANNELS, WIDTH), *(GatedMixer() for _ in range(4)), nn.Linear(WIDTH, CHANNELS))
model.to(device, torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, fused=True)
data = signals(24 * 16)
for batch in data.split(16):
    predicted = model(batch[:, :-1])
    loss = F.mse_loss(predicted.float(), batch[:, 1:].float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
