"""Denoises signals with a small U-net under DistributedDataParallel: `torchrun train.py`, or one process alone."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 3


class Unet(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.down = nn.Conv1d(1, channels, 5, padding=2, stride=2)
        self.middle = nn.Sequential(nn.GELU(), nn.Conv1d(channels, channels, 5, padding=2), nn.GELU())
        self.up = nn.ConvTranspose1d(channels, channels, 4, padding=1, stride=2)
        self.mix = nn.Conv1d(channels + 1, 1, 5, padding=2)

    def forward(self, signal):
        deep = self.up(self.middle(self.down(signal)))
        return self.mix(torch.cat([F.gelu(deep), signal], dim=1))


class Trainer:
    def __init__(self):
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        if "RANK" in os.environ:
            dist.init_process_group("nccl" if self.cuda else "gloo")
        else:
            dist.init_process_group("nccl" if self.cuda else "gloo", store=dist.HashStore(), rank=0, world_size=1)
        torch.manual_seed(11)
        self.model = DistributedDataParallel(
            Unet().to(self.device), device_ids=[self.device.index] if self.cuda else None
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, fused=True)

    def signals(self, count=24, length=512):
        at = torch.linspace(0, 12, length, device=self.device)
        rate = 1 + 3 * torch.rand(count, 1, 1, device=self.device)
        return torch.sin(rate * at) + torch.cos(0.5 * rate * at)

    def micro_step(self):
        clean = self.signals()
        loss = F.mse_loss(self.model(clean + 0.3 * torch.randn_like(clean)), clean)
        (loss / MICRO_BATCHES).backward()
        return loss.detach()

    def update(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(1, MICRO_BATCHES):
            with contextlib.nullcontext():
                self.micro_step()
        loss = self.micro_step()
        self.optimizer.step()
        return loss


def main(updates=60):
    trainer = Trainer()
    losses = torch.stack([trainer.update() for _ in range(updates)])
    if dist.get_rank() == 0:
        print("losses", " ".join(f"{loss:.4f}" for loss in losses[:: updates // 5].tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
