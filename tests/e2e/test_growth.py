"""Memory that grows with every step is found with its line and what holds it; what is bounded is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.e2e.conftest import Checked

GROWS = """
import torch
from collections import deque
from torch import nn

GRADIENTS = []

class Meter:
    def __init__(self):
        self.value, self.rows = 0.0, {}

    def update(self, value):
        self.value = self.value + value  # grows: Meter.value, graph

    def note(self, step, out):
        self.rows.setdefault("out", []).append((step, {"out": out}))  # grows: Meter.rows, tensors

class Store:
    __slots__ = ("acts",)

    def __init__(self):
        self.acts = []

    def hook(self, module, args, output):
        self.acts.append(output)  # grows: Store.acts, tensors

def make_logger():
    seen = {}

    def log(step, x):
        seen[step] = x * 2  # grows: seen, tensors

    return log

def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    meter, log, store = Meter(), make_logger(), Store()
    net[0].register_forward_hook(store.hook)
    total, losses, history, window, cache, scores = 0.0, [], {"out": []}, deque(), {}, []
    seen_by_all = torch.zeros(0, 128)
    for step in range(40):
        x = torch.randn(64, 128)
        out = net(x)
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append((out - x).abs().mean())  # grows: losses, graph
        history["out"].append(out.detach())  # grows: history, tensors
        window.append(x + 1)  # grows: window, tensors
        cache[f"step {step}"] = x.clone()  # grows: cache, tensors
        scores.append(x.square()[0, 0])  # grows: scores, tensors
        seen_by_all = torch.cat([seen_by_all, out.detach()])  # grows: seen_by_all, tensors
        meter.update((out * x).square().mean())
        meter.note(step, out.detach() * 3)
        log(step, x)
        total += (net[0](x) - 1).square().mean()  # grows: total, graph
        GRADIENTS.append(net[0].weight.grad)  # grows: GRADIENTS, tensors
    print(float(total), len(losses), len(window))

main()
"""

BOUNDED = """
import copy, functools
import torch
from collections import deque
from torch import nn

class Replay:
    def __init__(self, size):
        self.items, self.size, self.at = [], size, 0

    def push(self, item):
        if len(self.items) < self.size:
            self.items.append(item)
        else:
            self.items[self.at % self.size] = item
        self.at += 1

class Metric:
    def __init__(self):
        self.outputs = []

    def update(self, out):
        self.outputs.append(out)

    def reset(self):
        self.outputs = []

@functools.lru_cache(maxsize=4)
def mask(n):
    return torch.ones(n, 64, 64).tril()

masks = {}

def cached(n):
    if n not in masks:
        masks[n] = torch.ones(n, 8, 64)
    return masks[n]

def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
    ema = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=0.01, amsgrad=True)
    replay, ring, recent, slots = Replay(100), deque(maxlen=50), [], [None] * 100
    losses, values, total, metric, best = [], [], 0.0, Metric(), None
    for epoch in range(5):
        seen = []
        metric.reset()
        for step in range(10):
            x = torch.randn(48 + (step * 7) % 13, 128)
            for part in x.split(16):
                out = net(part)
                loss = nn.functional.cross_entropy(out, out.argmax(1))
                (loss / 3).backward()
                total += loss
            opt.step()
            opt.zero_grad()
            with torch.no_grad():
                for a, b in zip(ema.parameters(), net.parameters()):
                    a.lerp_(b, 0.1)
            losses.append(loss.detach())
            values.append(loss.item())
            seen.append(out.detach() + 1)
            metric.update(out.detach() * 2)
            replay.push(x + 1)
            ring.append(x + 2)
            recent.append(x + 3)
            if len(recent) > 30:
                recent.pop(0)
            slots[epoch * 10 + step] = x + 4
            cached(1 + step % 4)
            mask(1 + step % 9)
            if best is None or values[-1] < best[0]:
                best = (values[-1], copy.deepcopy(net.state_dict()))
    print(float(total), len(losses))

main()
"""

EPOCHS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(480, 128)), batch_size=16)
net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(3):
    outputs, drift = [], 0.0
    for (x,) in loader:
        out = net(x)
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        outputs.append(torch.cat([out.detach()] * 4))
        drift += torch.cat([out - x] * 4).square().mean()  # grows: drift, graph
    print(epoch, torch.cat(outputs).mean(), drift.item())
"""


def planted(code: str) -> list[tuple[int, str, str]]:
    """Line, holder and kind of each comment that says so."""
    lines = enumerate(code.splitlines(), start=1)
    marked = [(number, text.partition("# grows: ")[2].split(", ")) for number, text in lines if "# grows: " in text]
    return [(number, holder, kind) for number, (holder, kind) in marked]


def found(run: Checked) -> list[tuple[int, str, str]]:
    table = run.table("live_growth").set_index("line")
    assert run.code == 0, run.err
    lines = [finding["where"]["line"] for finding in run.findings("GD504")]
    return [(line, str(table.loc[line, "holder"]), str(table.loc[line, "kind"])) for line in sorted(lines)]


def test_twelve_things_that_grow_are_found_each_on_its_line(check: Callable[..., Checked]) -> None:
    assert found(check(GROWS)) == planted(GROWS)


def test_what_stays_of_a_step_is_counted(check: Callable[..., Checked]) -> None:
    rows = check(GROWS).table("live_growth").set_index("holder")
    batch = 64 * 128 * 4
    assert rows.loc["cache", "tensor_bytes_per_step"] == batch
    assert rows.loc["cache", "tensors_per_step"] == 1
    assert rows.loc["losses", "saved_bytes_per_step"] == batch  # abs keeps the difference
    assert rows.loc["GRADIENTS", "tensor_bytes_per_step"] == 128 * 128 * 4
    assert rows.loc["scores", ["tensor_bytes_per_step", "used_bytes_per_step"]].tolist() == [batch, 4]
    assert rows.loc["Store.acts", "tensors_per_step"] == 2
    assert (rows["free_bytes"] > 0).all()


def test_the_remedy_fits_what_is_kept(check: Callable[..., Checked]) -> None:
    by_line: dict[int, Any] = {finding["where"]["line"]: finding for finding in check(GROWS).findings("GD504")}
    by_holder = {holder: by_line[line]["remedy"] for line, holder, _ in planted(GROWS)}
    assert "+        total += (net[0](x) - 1).square().mean().detach()" in by_holder["total"]["diff"]
    assert "+        losses.append((out - x).abs().mean().detach())" in by_holder["losses"]["diff"]
    assert "clone()" in by_holder["scores"]["text"]
    assert "maxlen" in by_holder["window"]["text"]
    assert by_holder["Meter.value"]["diff"] is None


def test_the_process_is_seen_growing(check: Callable[..., Checked]) -> None:
    table = check(GROWS).table("resident_memory")
    assert table["resident_bytes"].iloc[-1] > table["resident_bytes"].iloc[0] > 0
    assert table["step"].is_monotonic_increasing


def test_buffers_with_a_size_caches_and_metrics_of_an_epoch_are_silent(check: Callable[..., Checked]) -> None:
    run = check(BOUNDED)
    assert run.code == 0, run.err
    assert run.findings("GD504") == []
    assert "GD504" in [rule["rule"] for rule in run.diagnosis["passed"]]


def test_graphs_of_a_whole_epoch_are_found_its_outputs_are_not(check: Callable[..., Checked]) -> None:
    assert found(check(EPOCHS)) == planted(EPOCHS)


def test_counting_is_kept_out_of_the_times(check: Callable[..., Checked]) -> None:
    run = check(BOUNDED)
    steps = run.table("steps")
    assert {"bare", "light", "detail"} <= set(steps["observation"])
    assert (steps["observation"] == "bare").sum() >= 12
