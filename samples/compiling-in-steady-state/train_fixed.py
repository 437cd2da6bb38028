"""Learns to add numbers in Fourier features, in short rounds."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "inductor" if device == "cuda" else "aot_eager"
torch.set_float32_matmul_precision("high")

ROUNDS, STEPS_PER_ROUND, BATCH, FEATURES = 10, 5, 128, 64


class Adder(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * FEATURES, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, pair):
        angle = pair.unsqueeze(-1) * torch.arange(1, FEATURES + 1, device=pair.device)
        return self.body(torch.sin(angle).flatten(1))


def train():
    torch.manual_seed(0)
    model = Adder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    compiled = torch.compile(model, backend=backend)
    for _ in range(ROUNDS):
        for _ in range(STEPS_PER_ROUND):
            pair = torch.rand(BATCH, 2, device=device)
            loss = F.mse_loss(compiled(pair), pair.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss


if __name__ == "__main__":
    print("final loss", round(train().item(), 4))
