"""Learns the sum of a formula's numbers from how often each operator stands in it; formulas are trees of objects."""

import random

import torch
from torch import nn

OPERATORS = ("+", "-", "*", "min", "max", "avg")
FORMULAS, BATCH, LEAVES, STEPS = 2500, 128, 24, 90


class Node:
    def __init__(self, operator, children, value):
        self.operator, self.children, self.value = operator, children, value


def formula(generator, leaves):
    """A random tree of operators over numbers."""
    if leaves == 1:
        return Node("number", [], generator.uniform(-1, 1))
    left = generator.randint(1, leaves - 1)
    children = [formula(generator, left), formula(generator, leaves - left)]
    return Node(generator.choice(OPERATORS), children, 0.0)


def shuffled(tree, generator):
    """The same formula, with operands swapped at random."""
    children = [shuffled(child, generator) for child in tree.children]
    if generator.random() < 0.5:
        children.reverse()
    return Node(tree.operator, children, tree.value)


def nodes(tree):
    yield tree
    for child in tree.children:
        yield from nodes(child)


def features(tree):
    counts, total = [0.0] * len(OPERATORS), 0.0
    for node in nodes(tree):
        total += node.value
        if node.operator in OPERATORS:
            counts[OPERATORS.index(node.operator)] += 1.0
    return [*counts, total]


def main():
    torch.manual_seed(2)
    generator = random.Random(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    formulas = [formula(generator, LEAVES) for _ in range(FORMULAS)]
    width = 384
    model = nn.Sequential(nn.Linear(len(OPERATORS) + 1, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
    model = nn.Sequential(model, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    total = torch.zeros((), device=device)
    for step in range(STEPS):
        batch = [shuffled(tree, generator) for tree in generator.sample(formulas, BATCH)]
        x = torch.tensor([features(tree) for tree in batch], device=device)
        loss = nn.functional.mse_loss(model(x).squeeze(1), x[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(f"{STEPS} steps: mean loss {total.item() / STEPS:.4f}")


if __name__ == "__main__":
    main()
