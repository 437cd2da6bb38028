"""Learns to denoise a signal; the noise grows in stages."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "inductor" if device == "cuda" else "aot_eager"
torch.set_float32_matmul_precision("high")

STAGES, STEPS_PER_STAGE, BATCH, LENGTH = 7, 6, 64, 256


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.register_buffer("stage", torch.zeros(()))
        self.body = nn.Sequential(nn.Linear(LENGTH, width), nn.GELU(), nn.Linear(width, LENGTH))

    def forward(self, clean):
        noise = torch.randn_like(clean) * 0.05 * (1 + self.stage)
        return self.body(clean + noise)


def batches():
    """Sines of random frequency and phase."""
    time = torch.linspace(0, 6.28, LENGTH, device=device)
    for _ in range(STEPS_PER_STAGE):
        frequency, phase = torch.rand(2, BATCH, 1, device=device)
        yield torch.sin((1 + 4 * frequency) * time + 6.28 * phase)


def train():
    torch.manual_seed(0)
    model = Denoiser().to(device)
    denoise = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for stage in range(STAGES):
        model.stage.fill_(stage)
        for clean in batches():
            loss = F.mse_loss(denoise(clean), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss


if __name__ == "__main__":
    print("final loss", round(train().item(), 4))
