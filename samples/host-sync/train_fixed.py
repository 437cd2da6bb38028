"""Teaches a small vision transformer to tell textures apart. Everything lives on the device."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PATCH, SIDE, CLASSES = 4, 32, 5
TOKENS = (SIDE // PATCH) ** 2
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.set_float32_matmul_precision("high")


def textures(count):
    """Stripes at an angle that depends on the class, with noise."""
    label = torch.randint(CLASSES, (count,), device=device)
    angle = label * (math.pi / CLASSES)
    axis = torch.arange(SIDE, device=device) / 3
    wave = axis[:, None] * torch.cos(angle)[:, None, None] + axis * torch.sin(angle)[:, None, None]
    image = torch.sin(wave + 6 * torch.rand(count, 1, 1, device=device)) + torch.randn(count, SIDE, SIDE, device=device)
    return image.unsqueeze(1), label


def build_model(width=96, depth=3, heads=4):
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
            self.position = nn.Parameter(torch.randn(TOKENS, width) / math.sqrt(width))
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
            self.classify = nn.Linear(width, CLASSES)

        def forward(self, image):
            tokens = self.patches(image).flatten(2).transpose(1, 2) + self.position
            return self.classify(self.encoder(tokens).mean(1))

    return ViT().to(device)


def train(epochs=3, batches=10, batch_size=32):
    images, labels = textures(batches * batch_size)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(epochs):
        correct = torch.zeros((), dtype=torch.long, device=device)
        order = torch.randperm(len(images), device=device)
        for picked in order.split(batch_size):
            image, label = images[picked], labels[picked]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = model(image)
                loss = F.cross_entropy(logits, label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == label).sum()
        print(f"epoch {epoch + 1}: accuracy {correct.item() / len(images):.1%}")


if __name__ == "__main__":
    torch.manual_seed(1234)
    train()
