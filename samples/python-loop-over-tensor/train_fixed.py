"""Short reviews, scored by a network on the mean of their word vectors; reviews have different lengths."""

import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, LONGEST, BATCH = 2000, 48, 24, 64


def made_up_reviews(count, generator):
    """Padded word ids, lengths, and a score that depends on the words."""
    worth = torch.randn(WORDS, generator=generator)
    words = torch.randint(1, WORDS, (count, LONGEST), generator=generator)
    lengths = torch.randint(3, LONGEST + 1, (count,), generator=generator)
    words[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return words, lengths, worth[words].mean(1)


def pooled(vectors, lengths):
    lengths = torch.tensor(lengths).to(vectors.device, non_blocking=True)[:, None]
    inside = torch.arange(LONGEST, device=vectors.device) < lengths
    return (vectors * inside[:, :, None]).sum(1) / lengths


def build(device):
    table = nn.Embedding(WORDS, WIDTH, padding_idx=0).to(device)
    head = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    return table, head


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(7)
    words, lengths, scores = made_up_reviews(1600, generator)
    words, scores = words.to(device), scores.to(device)
    table, head = build(device)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.5)
    for epoch in range(2):
        total = torch.zeros((), device=device)
        for first in range(0, len(words), BATCH):
            batch = slice(first, first + BATCH)
            means = pooled(table(words[batch]), lengths[batch].tolist())
            loss = F.mse_loss(head(means).squeeze(1), scores[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() * BATCH / len(words):.4f}")


if __name__ == "__main__":
    main()
