"""Learns which articles are read after each other: reader and article vectors, ranked against random articles."""

import itertools

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
READERS, ARTICLES, WIDTH = 90_000, 150_000, 48
BATCH, REJECTED, STEPS = 192, 4, 30


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.Embedding(READERS, WIDTH, sparse=True)
        self.article = nn.Embedding(ARTICLES, WIDTH, sparse=True)
        self.mix = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.Tanh())
        for table in (self.reader, self.article):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, reader, last, candidates):
        context = self.mix(torch.cat((self.reader(reader), self.article(last)), dim=-1))
        return torch.einsum("bd,bcd->bc", context, self.article(candidates))


def clicks():
    """Readers keep to a topic: the article that follows is near the last one."""
    while True:
        reader = torch.randint(READERS, (BATCH,), device=device)
        last = torch.randint(ARTICLES - 1, (BATCH,), device=device)
        others = torch.randint(ARTICLES, (BATCH, REJECTED), device=device)
        yield reader, last, torch.cat(((last + 1).unsqueeze(1), others), dim=1)


torch.manual_seed(11)
torch.set_float32_matmul_precision("high")
ranker = Ranker().to(device)
optimizer = torch.optim.Adagrad(ranker.parameters(), lr=0.05)
first_is_right = torch.zeros(BATCH, dtype=torch.long, device=device)
losses = []
for reader, last, candidates in itertools.islice(clicks(), STEPS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(ranker(reader, last, candidates), first_is_right)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
print("loss:", " ".join(f"{value:.3f}" for value in torch.stack(losses[::6]).tolist()))
