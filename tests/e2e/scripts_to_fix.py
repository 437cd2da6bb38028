"""Scripts whose problem has a certain remedy and that no sample shows in this form."""

from __future__ import annotations

LAST_BATCH = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(70, 24), torch.randint(0, 3, (70,)))
loader = DataLoader(data, batch_size=16)
net = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 3))
fast = torch.compile(net, backend="eager", dynamic=False)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(5):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(fast(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
"""

RECOMPILE_LIMIT = """\
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 12))
fast = torch.compile(
    net,
    backend="eager",
    dynamic=False,
)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(60):
    x = torch.randn(4 + step % 15, 12)
    loss = (fast(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

SLOW_READS = """\
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


if __name__ == "__main__":
    main()
"""

TEACHER = """\
import torch
from torch import nn
from torch.nn import functional as F


def mlp(width):
    return nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10))


class Distiller:
    def __init__(self):
        torch.manual_seed(0)
        self.teacher, self.student = mlp(256), mlp(64)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=1e-3)

    def step(self, x):
        # what to imitate
        target = self.teacher(x).softmax(dim=-1)
        loss = F.cross_entropy(self.student(x), target.detach())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self):
        for _ in range(60):
            self.step(torch.randn(64, 32))


Distiller().run()
"""

NO_SYMBOLS = """\
import torch
import torch._dynamo
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.out = nn.Linear(16, 5)

    def forward(self, ids, bias):
        return self.out(torch.tanh(self.embed(ids) + bias[:, None]).cumsum(1))


torch.manual_seed(0)
torch._dynamo.config.automatic_dynamic_shapes = False
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tagger = torch.compile(model, backend="eager")
for step in range(40):
    words = torch.randint(50, (4, 5 + (step * 7) % 13))
    scores = tagger(words, bias=torch.randn(4, 16))
    loss = scores.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

RUNNING_LOSS = """\
import torch
from torch import nn
from torch.nn import functional as F


def train(net, batches, epochs):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(epochs):
        total, seen = 0.0, 0
        for x, y in batches:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
            seen += len(x)
        print(f"epoch {epoch}: {total / seen:.4f}")


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
train(net, [(torch.randn(32, 64), torch.randint(0, 4, (32,))) for _ in range(30)], epochs=2)
"""

LOOPED_ADAMAX = """\
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.SiLU()) for _ in range(50)])
optimizer = torch.optim.Adamax(net.parameters(), lr=1e-3, foreach=False)
for step in range(40):
    x = torch.randn(16, 24)
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

ANOMALY = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Tanh())])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(60):
    x = torch.randn(16, 32)
    # where does the NaN come from?
    with torch.autograd.set_detect_anomaly(True):
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
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

EMPTIED_CACHE = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(40):
    x = torch.randn(16, 32)
    loss = (net(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()  # make room
"""
