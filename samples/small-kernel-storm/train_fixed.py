"""Fits the conductances of a small grid of heat conductors to temperatures measured after 192 ticks."""

import torch

SIDE, TICKS = 6, 192
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def edges():
    """Pairs of neighbouring nodes of a square grid."""
    node = torch.arange(SIDE * SIDE).view(SIDE, SIDE)
    across = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()])
    down = torch.stack([node[:-1].flatten(), node[1:].flatten()])
    return torch.cat([across, down], dim=1).to(DEVICE)


def transfer(log_conductance, pairs):
    """The matrix that takes the temperatures of one tick to those of the next."""
    flow = torch.zeros(SIDE * SIDE, SIDE * SIDE, device=DEVICE)
    flow = flow.index_put((pairs[0], pairs[1]), log_conductance.exp())
    flow = flow + flow.T
    return flow + torch.diag(1 - flow.sum(1))


def simulate(matrix, heat):
    return torch.linalg.matrix_power(matrix, TICKS) @ heat


class Fit:
    def __init__(self, pairs):
        self.pairs = pairs
        self.estimate = torch.full((pairs.shape[1],), -3.0, device=DEVICE, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.estimate], lr=0.05)

    def __call__(self, start, measured):
        error = (simulate(transfer(self.estimate, self.pairs), start) - measured).square().mean()
        self.optimizer.zero_grad()
        error.backward()
        self.optimizer.step()
        return error.detach()


torch.manual_seed(5)
pairs = edges()
truth = torch.empty(pairs.shape[1], device=DEVICE).uniform_(-4, -2)
fit = Fit(pairs)
errors = []
for round_ in range(60):
    start = 10 * torch.rand(SIDE * SIDE, 8, device=DEVICE)
    with torch.no_grad():
        measured = torch.linalg.matrix_power(transfer(truth, pairs), TICKS) @ start
    errors.append(fit(start, measured))
print("error of the first and the last round:", *(f"{errors[at].item():.1e}" for at in (0, -1)))
