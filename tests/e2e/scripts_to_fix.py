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
