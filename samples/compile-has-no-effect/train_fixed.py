"""A small variational autoencoder on random glyphs."""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "inductor" if device == "cuda" else "aot_eager"
torch.set_float32_matmul_precision("high")

STEPS, BATCH, PIXELS, LATENT = 40, 128, 144, 12


class GlyphVae(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(PIXELS, width), nn.GELU(), nn.Linear(width, 2 * LATENT))
        self.decode = nn.Sequential(nn.Linear(LATENT, width), nn.GELU(), nn.Linear(width, PIXELS))

    def forward(self, glyph):
        mean, spread = self.encode(glyph).chunk(2, dim=-1)
        code = mean + torch.exp(0.5 * spread) * torch.randn_like(mean)
        return self.decode(code), mean, spread

    def training_loss(self, glyph):
        logits, mean, spread = self(glyph)
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1)
        return F.binary_cross_entropy_with_logits(logits, glyph) + 1e-3 * divergence.mean()


def glyphs():
    """Random bars on a square canvas."""
    side = int(PIXELS**0.5)
    rows = torch.randint(0, side, (BATCH, 1, 1), device=device)
    grid = torch.arange(side, device=device)
    return ((grid[None, :, None] - rows).abs() < 2).float().expand(BATCH, side, side).reshape(BATCH, PIXELS)


def train():
    torch.manual_seed(0)
    vae = GlyphVae().to(device)
    vae.training_loss = torch.compile(vae.training_loss, backend=backend)
    optimizer = torch.optim.AdamW(vae.parameters(), lr=2e-3, fused=True)
    for _ in range(STEPS):
        loss = vae.training_loss(glyphs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


if __name__ == "__main__":
    print("final loss", round(train().item(), 3))
