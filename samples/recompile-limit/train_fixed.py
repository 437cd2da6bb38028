"""Learns from sets of views: each sample is seen from a changing number of sides."""

import random

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "inductor" if device == "cuda" else "aot_eager"
torch.set_float32_matmul_precision("high")

STEPS, BATCH, FEATURES, MOST_VIEWS = 40, 32, 96, 14


class ViewNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, 4)

    def forward(self, views):
        return self.head(self.encode(views).mean(0))


def make_views(count):
    """Noisy views of the same objects, and the objects' classes."""
    label = torch.randint(0, 4, (BATCH,), device=device)
    signal = F.one_hot(label, FEATURES).float() * 3
    return [signal + torch.randn(BATCH, FEATURES, device=device) for _ in range(count)], label


def train():
    torch.manual_seed(0)
    random.seed(0)
    net = ViewNet().to(device)
    compiled = torch.compile(net, backend=backend)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, fused=True)
    for _ in range(STEPS):
        views, label = make_views(random.randint(2, MOST_VIEWS))
        loss = F.cross_entropy(compiled(torch.stack(views)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


if __name__ == "__main__":
    print("final loss", round(train().item(), 3))
