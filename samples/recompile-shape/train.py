"""Finds bright discs in noise with a small U-shaped convnet, trained at several image sizes."""

import random

import torch
import torch.nn.functional as F
from torch import nn

SIZES = [48, 64, 80, 96, 112, 128]  # multi-scale training: the size changes every few steps
STEPS_PER_SIZE, BATCH = 10, 4

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")


def conv(inside, outside, stride=1):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class DiscNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = conv(1, width)
        self.down = nn.Sequential(conv(width, 2 * width, stride=2), conv(2 * width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, image):
        skip = self.stem(image)
        return self.head(skip + self.up(self.down(skip)))


def make_batch(size):
    """Noisy images of one disc each, and the disc's mask."""
    axis = torch.linspace(-1, 1, size, device=device)
    centre = 1.2 * torch.rand(2, BATCH, 1, 1, device=device) - 0.6
    mask = ((axis[:, None] - centre[0]) ** 2 + (axis[None, :] - centre[1]) ** 2 < 0.1).float().unsqueeze(1)
    image = mask + 0.7 * torch.randn_like(mask)
    return image.to(memory_format=torch.channels_last), mask


def train():
    torch.manual_seed(0)
    random.seed(0)
    batches = [make_batch(size) for size in random.sample(SIZES, len(SIZES)) for _ in range(STEPS_PER_SIZE)]
    net = DiscNet().to(device, memory_format=torch.channels_last)
    compiled = torch.compile(net, dynamic=False, backend="inductor" if device == "cuda" else "aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    for image, mask in batches:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = F.binary_cross_entropy_with_logits(compiled(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


if __name__ == "__main__":
    print("final loss", round(train().item(), 3))
