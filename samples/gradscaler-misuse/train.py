import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(7)

# counts the ones in a bit string that is read one bit at a time: gradients through time need clipping
bits, hidden, batch = 20, 96, 64


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(1, hidden)
        self.update = nn.Linear(2 * hidden, hidden)
        self.tell = nn.Linear(hidden, bits + 1)

    def forward(self, string):
        seen = self.read(string.unsqueeze(-1))
        state = seen.new_zeros(len(string), hidden)
        for bit in seen.unbind(1):
            state = torch.tanh(self.update(torch.cat((state, bit), dim=1)))
        return self.tell(state)


net = Counter().to(dev)
sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=True)
scaler = torch.amp.GradScaler(dev, init_scale=2.0**14)
strings = torch.randint(0, 2, (40, batch, bits), device=dev)

for string in strings:
    with torch.autocast(dev, dtype=torch.float16):
        answer = net(string.float())
        loss = nn.functional.cross_entropy(answer, string.sum(1))
    scaler.scale(loss).backward()
    clip_grad_norm_(net.parameters(), max_norm=1.0)
    scaler.step(sgd)
    scaler.update()
    sgd.zero_grad()

print(f"loss {loss.item():.3f}, scale {scaler.get_scale():.0f}")
