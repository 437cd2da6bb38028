"""A denoiser for measured curves, which notes how rough the curves are that it gives back."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CURVES, POINTS = 192, 1024


def draw_curves(count):
    """Sums of three waves, and the same with noise."""
    at = torch.linspace(0, 1, POINTS, device=DEVICE)
    waves = torch.rand(count, 3, 1, device=DEVICE) * 20 + 2
    clean = (waves * at + torch.rand(count, 3, 1, device=DEVICE) * 6).sin().mean(dim=1)
    return clean + 0.3 * torch.randn_like(clean), clean


class Denoiser(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(POINTS, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, POINTS),
        )

    def forward(self, noisy):
        return noisy + self.inner(noisy)


def roughness(curves):
    return (curves[:, 1:] - curves[:, :-1]).square().mean()


def fit(model, optimizer, steps=60):
    losses, rough = [], []
    for _ in range(steps):
        noisy, clean = draw_curves(CURVES)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            restored = model(noisy)
        loss = (restored.float() - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        rough.append(roughness(restored.detach().float()))
    return torch.stack(losses), torch.stack(rough)


def main():
    torch.manual_seed(5)
    torch.set_float32_matmul_precision("high")
    model = Denoiser().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    losses, rough = fit(model, optimizer)
    print(f"loss {losses[-10:].mean():.4f}, roughness {rough[-10:].mean():.5f}")


if __name__ == "__main__":
    main()
