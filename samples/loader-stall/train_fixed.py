"""Recognises which of a few chirps a clip holds, from its log spectrogram."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, CLIP, WINDOW, HOP, KINDS = 16_000, 16_000, 1024, 64, 6


class Chirps(Dataset):
    """Clips of noise with a rising or falling tone in them."""

    def __init__(self, clips, seed=0):
        rng = np.random.default_rng(seed)
        time = np.arange(CLIP, dtype=np.float32) / RATE
        self.kind = rng.integers(0, KINDS, clips)
        sweep = 300 + 250 * self.kind[:, None] * (1 + time)
        noise = rng.standard_normal((clips, CLIP), dtype=np.float32)
        waves = (np.sin(2 * np.pi * sweep * time) + noise).astype(np.float32)
        self.clips = [spectrogram(wave) for wave in waves]

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        return self.clips[index], self.kind[index]


def spectrogram(wave):
    """Log power spectrogram, normalised to zero mean and unit deviation, as a (1, bins, frames) tensor."""
    frames = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    bands = np.log1p(power[:234, :256].reshape(117, 2, 128, 2).mean((1, 3)).T)
    return torch.from_numpy(((bands - bands.mean()) / bands.std()).astype(np.float32))[None]


class Listener(nn.Sequential):
    def __init__(self):
        layers = []
        for inside, outside in [(1, 32), (32, 64), (64, 96)]:
            layers += [nn.Conv2d(inside, outside, 3, 2, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, KINDS))


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    loader = DataLoader(Chirps(480), batch_size=16, shuffle=True, drop_last=True, pin_memory=cuda)
    net = Listener().to(device, memory_format=torch.channels_last)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, fused=True)
    for epoch in range(2):
        for clips, kinds in loader:
            clips, kinds = clips.to(device, non_blocking=True), kinds.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
                loss = criterion(net(clips), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
