"""A siamese network that tells whether two recordings are of the same speaker, probed on held-out pairs."""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPEAKERS, COEFFICIENTS, FRAMES, CLIPS = 24, 20, 48, 96


def make_tower():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(COEFFICIENTS * FRAMES, 512),
        nn.SiLU(),
        nn.Dropout(0.1),
        nn.Linear(512, 512),
        nn.SiLU(),
        nn.Linear(512, 64),
    )


def draw_pairs(voices, count):
    """Two clips each of `count` speakers; half of the second ones are of somebody else."""
    who = torch.randint(SPEAKERS, (count,), device=DEVICE)
    other = torch.where(torch.arange(count, device=DEVICE) % 2 == 0, who, (who + 1) % SPEAKERS)
    first, second = (
        voices[index] + 0.8 * torch.randn(count, COEFFICIENTS, FRAMES, device=DEVICE) for index in (who, other)
    )
    return first, second, (who == other).float()


@torch.no_grad()
def probe(tower, held_out):
    """Share of held-out pairs that are on the right side of the threshold."""
    tower.eval()
    right = []
    for first, second, same in held_out:
        a, b = tower(first), tower(second)
        alike = F.cosine_similarity(a, b)
        right.append(((alike > 0.5) == same.bool()).float().mean())
    tower.train()
    return torch.stack(right).mean()


def main():
    torch.manual_seed(3)
    torch.set_float32_matmul_precision("high")
    voices = torch.randn(SPEAKERS, COEFFICIENTS, FRAMES, device=DEVICE)
    tower = make_tower().to(DEVICE)
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.05, momentum=0.9, fused=True)
    held_out = [draw_pairs(voices, CLIPS) for _ in range(3)]
    scores = []
    for step in range(1, 61):
        first, second, same = draw_pairs(voices, CLIPS)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            both = tower(torch.cat((first, second)))
        a, b = both.float().chunk(2)
        loss = F.mse_loss(F.cosine_similarity(a, b), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 12 == 0:
            scores.append(probe(tower, held_out))
    print("held-out pairs told apart:", " ".join(f"{score:.2f}" for score in torch.stack(scores).tolist()))


if __name__ == "__main__":
    main()
