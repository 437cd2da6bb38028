"""Scripts whose problems have certain remedies and that no sample shows in this form; several problems in one script."""

from __future__ import annotations

EAGER = """\
import torch
from torch import nn
from torch.nn import functional as F


def mlp(width, depth):
    layers = [nn.Linear(32, width)]
    for _ in range(depth):
        layers += [nn.GELU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.Linear(width, 10))


class Distiller:
    def __init__(self):
        torch.manual_seed(0)
        self.teacher, self.student = mlp(256, 1), mlp(48, 20)
        self.optimizer = torch.optim.Adamax(self.student.parameters(), lr=1e-3, foreach=False)

    def train(self, batches):
        total, seen = 0.0, 0
        for x in batches:
            # where does the NaN come from?
            with torch.autograd.set_detect_anomaly(True):
                # what to imitate
                target = self.teacher(x).softmax(dim=-1)
                loss = F.cross_entropy(self.student(x), target.detach())
                self.optimizer.zero_grad(set_to_none=False)
                loss.backward()
            self.optimizer.step()
            total += loss.item() * len(x)
            seen += len(x)
            torch.cuda.empty_cache()  # make room
        print(f"loss {total / seen:.4f}")


Distiller().train([torch.randn(64, 32) for _ in range(40)])
"""

CONVOLVED = """\
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def stage(inside, outside):
    return nn.Sequential(nn.Conv1d(inside, outside, 5, padding=2), nn.BatchNorm1d(outside), nn.SiLU())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(stage(2, 24), *[stage(24, 24) for _ in range(6)])
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        hour = torch.arange(x.shape[-1], dtype=torch.float32).to(x.device)
        x = torch.cat([x, torch.sin(hour).expand(len(x), 1, -1)], dim=1)
        return self.head(self.body(x).mean(-1))


def batches(count):
    for _ in range(count):
        yield torch.randn(16, 1, 64, device=DEVICE), torch.randint(4, (16,), device=DEVICE)


def update(net, optimizer, x, y):
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
    optimizer.step()
    return loss.detach()


def probe(net, held_out):
    net.eval()
    right = []
    for x, y in held_out:
        right.append((net(x).argmax(-1) == y).float().mean())
    net.train()
    return torch.stack(right).mean()


def main():
    torch.manual_seed(0)
    net = Net().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
    held_out = list(batches(3))
    scores = []
    for number, (x, y) in enumerate(batches(48), start=1):
        loss = update(net, optimizer, x, y)
        if number % 12 == 0:
            scores.append(probe(net, held_out))
    print(loss, torch.stack(scores))


if __name__ == "__main__":
    main()
"""

ATTENTIVE = """\
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORDS, WIDTH, HEADS = 40_000, 64, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = scores.softmax(dim=-1)
        mixed = weights @ v
        return self.head(mixed.transpose(1, 2).flatten(2).mean(1))


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(WORDS, (96, 192)), torch.randint(4, (96,)))
    loader = DataLoader(data, batch_size=16, num_workers=1)
    model = Model()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(6):
        for ids, kinds in loader:
            loss = F.cross_entropy(model(ids), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""

COMPILED = """\
import torch
import torch._dynamo
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


inner, outer = nn.Linear(12, 32), nn.Linear(32, 12)


def coded(z):
    return outer(torch.tanh(inner(z)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 5)

    def forward(self, ids, bias):
        return self.out(torch.tanh(self.embed(ids) + bias[:, None]).cumsum(1))


torch.manual_seed(0)
torch._dynamo.config.automatic_dynamic_shapes = False
loader = DataLoader(TensorDataset(torch.randn(70, 24), torch.randint(0, 3, (70,))), batch_size=16)
net = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 3))
fast = torch.compile(net, backend="eager", dynamic=False)
code = torch.compile(
    coded,
    backend="eager",
    dynamic=False,
)
model = Tagger()
tagger = torch.compile(model, backend="eager")
opt = torch.optim.SGD([*net.parameters(), *inner.parameters(), *model.parameters()], lr=0.05)
step = 0
for epoch in range(8):
    for x, y in loader:
        words = torch.randint(50, (4, 5 + (step * 7) % 5))
        z = torch.randn(4 + step % 15, 12)
        loss = F.cross_entropy(fast(x), y) + (code(z) - z).square().mean()
        scores = tagger(words, bias=torch.randn(4, 16))
        loss = loss + scores.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
"""

SLOW_READS = """\
import gc
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.002)  # a disk that is far away
        return torch.full((64,), index / 400)


def main():
    loader = DataLoader(
        Shards(),
        batch_size=8,  # small
    )
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(60)])
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in loader:
        loss = sum(net(batch).square().mean() for _ in range(8))
        opt.zero_grad()
        loss.backward()
        opt.step()
        gc.collect()


if __name__ == "__main__":
    main()
"""

ACCUMULATING = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PARTS = 4
torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    optimizer.zero_grad()
    for part in range(PARTS):
        x, y = torch.randn(16, 32), torch.randint(0, 8, (16,))
        loss = nn.functional.cross_entropy(model(x), y) / PARTS
        loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""

GROWING = '''"""Learns to tell noise apart, and watches how much a second, noisier pass differs: the sum keeps every graph."""

import torch
import torch.nn as nn


def main():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    drift = 0.0
    for _ in range(60):
        x = torch.randn(256, 64)
        y = torch.randint(0, 4, (256,))
        scores = net(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, y).backward()
        optimizer.step()
        again = net(x + 0.1 * torch.randn_like(x))
        drift += (again - scores.detach()).square().mean()
    print("mean drift", float(drift) / 60)


if __name__ == "__main__":
    main()
'''
