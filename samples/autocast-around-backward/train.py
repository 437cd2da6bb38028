"""Learns embeddings of short token sequences from pairs, with a temperature-scaled contrastive loss."""

import torch
from torch import nn

TOKENS, LENGTH, WIDTH, PAIRS = 500, 24, 192, 96
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.mix = nn.Sequential(nn.Linear(LENGTH, 4 * LENGTH), nn.GELU(), nn.Linear(4 * LENGTH, LENGTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.mix(x.mT).mT
        return self.project(self.norm(x).mean(dim=1))


def contrastive(left, right):
    """InfoNCE; the similarities are computed in float32, as small differences between them decide."""
    with torch.autocast(DEVICE, enabled=False):
        left, right = (nn.functional.normalize(x.float(), dim=-1) for x in (left, right))
        logits = left @ right.T / 0.05
        return nn.functional.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def update(encoder, optimizer, pair):
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = contrastive(encoder(pair[0]), encoder(pair[1]))
        loss.backward()
    optimizer.step()
    return loss.detach()


def pairs(count, generator):
    """A sequence and a copy of it in which a fifth of the tokens are others."""
    for _ in range(count):
        ids = torch.randint(TOKENS, (PAIRS, LENGTH), generator=generator)
        noise = torch.randint(TOKENS, (PAIRS, LENGTH), generator=generator)
        other = torch.where(torch.rand(PAIRS, LENGTH, generator=generator) < 0.2, noise, ids)
        yield torch.stack((ids, other)).pin_memory() if DEVICE == "cuda" else torch.stack((ids, other))


if __name__ == "__main__":
    torch.manual_seed(0)
    encoder = Encoder().to(DEVICE)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, fused=True)
    for pair in pairs(40, torch.Generator().manual_seed(1)):
        loss = update(encoder, optimizer, pair.to(DEVICE, non_blocking=True))
    print(f"contrastive loss {loss.item():.3f}")
