"""Fits curves with a loss that is written as a formula."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "inductor" if device == "cuda" else "aot_eager"
torch.set_float32_matmul_precision("high")

STEPS, BATCH, FORMULA = 40, 256, "torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()"


def loss_from(formula):
    """A function of the error from its formula."""
    space = {"torch": torch}
    exec(f"def loss_of(error):\n    return {formula}", space)
    return space["loss_of"]


def train():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, fused=True)
    for step in range(STEPS):
        if step % 5 == 0:  # the formula may have been edited meanwhile
            loss_of = torch.compile(loss_from(FORMULA), backend=backend)
        point = torch.randn(BATCH, 8, device=device)
        target = torch.sin(point.sum(1, keepdim=True))
        loss = loss_of(net(point) - target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


if __name__ == "__main__":
    print("final loss", round(train().item(), 4))
