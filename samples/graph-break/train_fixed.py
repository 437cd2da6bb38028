"""A small compiled language model that learns to count in strides."""

import logging

import torch
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("strides")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_float32_matmul_precision("high")

VOCAB, CONTEXT, WIDTH, HEADS, BATCH, STEPS = 96, 64, 128, 4, 16, 40


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(heads.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class StrideLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        x = self.blocks(self.embed(tokens) + self.position)
        return self.head(x)


def main():
    torch.manual_seed(0)
    start = torch.randint(VOCAB, (STEPS, BATCH, 1), device=device)
    stride = torch.randint(1, 8, (STEPS, BATCH, 1), device=device)
    corpus = (start + stride * torch.arange(CONTEXT + 1, device=device)) % VOCAB

    model = StrideLM().to(device)
    compiled = torch.compile(model, backend="inductor" if device.type == "cuda" else "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for tokens in corpus:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = compiled(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.debug("logits %s", tuple(logits.shape))
    print(f"loss {loss.item():.3f} after {STEPS} steps")


if __name__ == "__main__":
    main()
