"""Sorts sensor traces into machine states; a decoder from an earlier experiment still reconstructs each trace."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--states", type=int, default=6)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--batch", type=int, default=256)
args = parser.parse_args()


class Decoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.widen = nn.Linear(code, 768)
        self.trace = nn.Linear(768, args.length)

    def forward(self, z):
        return self.trace(nn.functional.silu(self.widen(z)))


class StateNet(nn.Module):
    def __init__(self, code=96):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(args.length, 768), nn.SiLU(), nn.Linear(768, code))
        self.decoder = Decoder(code)
        self.classify = nn.Linear(code, args.states)


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(9)
torch.set_float32_matmul_precision("high")
shapes = torch.cumsum(torch.randn(args.states, args.length, device=device), dim=1) / 8
labels = torch.randint(args.states, (8 * args.batch,), device=device)
traces = shapes[labels] + 0.5 * torch.randn(len(labels), args.length, device=device)

net = StateNet().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
losses = []
for _ in range(args.rounds):
    for trace, label in zip(traces.split(args.batch), labels.split(args.batch), strict=True):
        code = net.encoder(trace)
        loss = nn.functional.cross_entropy(net.classify(code), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
print("loss by round:", " ".join(f"{x:.3f}" for x in torch.stack(losses).view(args.rounds, -1).mean(dim=1).tolist()))
