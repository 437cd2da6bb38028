"""A denoising autoencoder, trained by a small Trainer class."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    features: int = 784
    hidden: int = 2048
    code: int = 64
    batch_size: int = 16
    epochs: int = 3
    lr: float = 0.2
    noise: float = 0.3
    device: str = "cuda" if torch.cuda.is_available() else "cpu"


class Autoencoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        wide = config.hidden
        self.encoder = nn.Sequential(
            nn.Linear(config.features, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, config.code)
        )
        self.decoder = nn.Sequential(
            nn.Linear(config.code, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, config.features)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, config, model, data):
        self.config = config
        self.data = data.to(config.device)
        self.model = model.to(config.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, momentum=0.9, fused=True)

    def step(self, clean):
        noisy = clean + self.config.noise * torch.randn_like(clean)
        with torch.autocast(self.config.device, torch.bfloat16, enabled=self.config.device == "cuda"):
            loss = nn.functional.mse_loss(self.model(noisy), clean)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self):
        for epoch in range(self.config.epochs):
            running = torch.zeros((), device=self.config.device)
            batches = torch.randperm(len(self.data), device=self.config.device).split(self.config.batch_size)
            for rows in batches:
                running += self.step(self.data[rows])
            print(f"epoch {epoch}: loss {running.item() / len(batches):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = Config()
    digits = torch.sigmoid(torch.randn(192, 24) @ torch.randn(24, config.features))
    Trainer(config, Autoencoder(config), digits).fit()
