"""Steps that copy small tensors, and constants, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.synthetic import FLOAT, Tensor, Torch
from tests.synthetic.programs.training import Training, plain

if TYPE_CHECKING:
    import torch  # noqa: F401  # a script's source says where `torch` comes from; here it is the machine

FEATURES = [(1024,)] * 24
"""Shapes of a batch's small tensors: 4 KiB each."""


def constant_each_step(t: Training, x: Tensor, y: Tensor) -> None:
    torch = t.torch
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4] * 64, device="cuda")  # problem: GD304
    weighted(t, weights, x, y)


def constant_before(torch: Torch) -> None:
    training = Training(torch)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4] * 64, device="cuda")
    for batch in training.loader:
        weighted(training, weights, *training.ahead(batch))


def weighted(t: Training, weights: Tensor, x: Tensor, y: Tensor) -> None:
    loss = t.torch.cross_entropy(t.torch.pointwise("mul", t.forward(x), weights), y)
    t.update(loss)
    t.torch.item(loss)


def features(torch: Torch, packed: bool, pinned: bool = True) -> None:
    """A batch with many small tensors beside the large one; nothing else makes the host wait."""
    training = Training(torch)
    for batch in training.loader:
        x, y = training.ahead(batch)
        for feature in in_one(torch) if packed else one_by_one(torch, pinned):
            x = torch.pointwise("add", x, feature)
        training.update(training.loss(x, y))


def one_by_one(torch: Torch, pinned: bool) -> list[Tensor]:
    made = [Tensor(shape, FLOAT, "cpu", pinned=pinned) for shape in FEATURES]
    return [torch.cuda(one) for one in made]  # problem: GD305


def in_one(torch: Torch) -> list[Tensor]:
    buffer = torch.cuda(Tensor((1024 * len(FEATURES),), FLOAT, "cpu", pinned=True))
    return [torch.view(buffer, shape, "split") for shape in FEATURES]


def ahead(t: Training, x: Tensor, y: Tensor) -> None:
    """As many copies, made beside the computing: they cost nothing."""
    loss = t.loss(x, y)
    t.update(loss)
    with t.torch.copy_stream():
        for shape in FEATURES:
            t.torch.cuda(Tensor(shape, FLOAT, "cpu", pinned=True), non_blocking=True)
    t.torch.item(loss)


def through_numpy(t: Training, x: Tensor, y: Tensor) -> None:
    host = t.torch.cpu(x)  # problem: GD307
    changed = t.torch.numpy_work(host)
    x = t.torch.cuda(changed)
    plain(t, x, y)


def logged(t: Training, x: Tensor, y: Tensor) -> None:
    """The output goes to the host to be looked at; another tensor of its size comes from there."""
    target = Tensor(x.shape, x.dtype, "cpu", pinned=True)
    out = t.torch.cpu(t.forward(x), pinned=True)
    t.torch.numpy_work(out)
    target = t.torch.cuda(target, non_blocking=True)
    plain(t, t.torch.pointwise("add", x, target), y)


def read_one_by_one(t: Training, x: Tensor, y: Tensor) -> None:
    """Twelve values, each read by itself."""
    for weight in t.weights[:12]:
        t.torch.item(t.torch.reduce("sum", weight))  # problem: GD301
    plain(t, x, y)
