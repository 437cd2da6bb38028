from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(7)

# tells how many ones a bit string has; plain layers without norms, so that early gradients are large
bits, hidden, batch, depth = 48, 160, 256, 5
widths = [bits, *[hidden] * depth]
net = nn.Sequential()
for before, after in pairwise(widths):
    net.extend([nn.Linear(before, after), nn.Tanh()])
net.append(nn.Linear(hidden, bits + 1))
net.to(dev)

sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=True)
scaler = torch.amp.GradScaler(dev, init_scale=2.0**14)
strings = torch.randint(0, 2, (40, batch, bits), device=dev)

for string in strings:
    with torch.autocast(dev, dtype=torch.float16):
        answer = net(string.float())
        loss = nn.functional.cross_entropy(answer, string.sum(1))
    scaler.scale(loss).backward()
    scaler.unscale_(sgd)
    clip_grad_norm_(net.parameters(), max_norm=1.0)
    scaler.step(sgd)
    scaler.update()
    sgd.zero_grad()

print(f"loss {loss.item():.3f}, scale {scaler.get_scale():.0f}")
