"""One problem a program, and its healthy twin: the marked line is what the rule must name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.synthetic import BFLOAT16, FLOAT, LONG, MS, US, Tensor, Torch
from tests.synthetic.programs import copies, images, layers
from tests.synthetic.programs.training import Training, plain, train


def read_after_the_loss(t: Training, x: Tensor, y: Tensor) -> None:
    small = t.torch.view(x, (32, t.width))
    for _ in range(3):
        small = t.torch.reduce("sum", t.forward(small), (32, t.width))
        t.torch.item(small)  # problem: GD301
    t.update(t.torch.reduce("mean", small))


def copying(torch: Torch, pin_memory: bool, non_blocking: bool) -> None:
    training = Training(torch, pin_memory=pin_memory, layers=2)
    for x, y in training.loader:
        copied(training, x, y, non_blocking)


def copied(t: Training, x: Tensor, y: Tensor, non_blocking: bool) -> None:
    x = t.torch.cuda(x, non_blocking)  # problem: GD302 GD303
    plain(t, x, t.torch.cuda(y, non_blocking))


def storm(t: Training, x: Tensor, y: Tensor) -> None:
    state = Tensor((256,))
    for _ in range(150):
        state = t.torch.pointwise("add", t.torch.pointwise("mul", state))  # problem: GD201
    plain(t, x, y)


def launches(torch: Torch, batch: int, reads: bool = False) -> None:
    weights = [Tensor((512, 512), BFLOAT16, parameter=True) for _ in range(40)]
    optimizer = torch.AdamW(weights, style="fused")
    for x, _ in torch.DataLoader([((batch, 512), BFLOAT16), ((batch,), LONG)]):
        with torch.copy_stream():
            x = torch.cuda(x, non_blocking=True)
        for weight in weights:
            torch.host.think(60 * US)  # a module with much Python around little work
            x = torch.linear(x, weight)
        loss = torch.reduce("mean", x)
        optimizer.zero_grad()
        torch.backward(loss)
        optimizer.step()
        if reads:
            torch.item(loss)


def reducing(torch: Torch, bucket_bytes: int, overlap: bool) -> None:
    training = Training(torch)
    torch.DistributedDataParallel(training.weights, bucket_bytes=bucket_bytes, overlap=overlap)
    for batch in training.loader:
        plain(training, *training.ahead(batch))


PAIRS: dict[str, tuple[Callable[[Torch], None], Callable[[Torch], None]]] = {
    "GD201": (partial(train, step=storm), partial(train, step=plain)),
    "GD202": (partial(launches, batch=4096), partial(launches, batch=65_536)),
    "GD203": (partial(train, step=plain, style="loop"), partial(train, step=plain)),
    "GD301": (partial(train, step=read_after_the_loss), partial(train, step=plain)),
    "GD302": (partial(copying, pin_memory=False, non_blocking=False), partial(train, step=plain)),
    "GD303": (partial(copying, pin_memory=True, non_blocking=False), partial(train, step=plain)),
    "GD204": (partial(layers.attending, fused=False), partial(layers.attending, fused=True)),
    "GD205": (partial(layers.weighing, rows=2), partial(layers.weighing, rows=4096)),
    "GD207": (partial(layers.slicing, leave_out=1), partial(layers.slicing, leave_out=8)),
    "GD208": (partial(layers.activating, fused=False), partial(layers.activating, fused=True)),
    "GD304": (partial(train, step=copies.constant_each_step), copies.constant_before),
    "GD307": (partial(train, step=copies.through_numpy), partial(train, step=plain)),
    "GD305": (partial(copies.features, packed=False), partial(copies.features, packed=True)),
    "GD401": (partial(train, step=plain, dtype=FLOAT), partial(train, step=plain)),
    "GD402": (partial(train, step=plain, dtype=FLOAT), partial(train, step=plain)),
    "GD403": (partial(layers.normalising, to_and_fro=True), partial(layers.normalising, to_and_fro=False)),
    "GD407": (partial(layers.widening, width=2049), partial(layers.widening, width=2056)),
    "GD408": (partial(images.convolving, channels_last=False), partial(images.convolving, channels_last=True)),
    "GD410": (
        partial(images.convolving, channels_last=True, benchmark=True, sizes=4),
        partial(images.convolving, channels_last=True, benchmark=True),
    ),
    "GD601": (partial(train, step=plain, workers=1, make_ns=40 * MS), partial(train, step=plain)),
    "GD801": (partial(reducing, bucket_bytes=2**30, overlap=False), partial(train, step=plain)),
    "GD808": (partial(images.normalising_together, sync=True), partial(images.normalising_together, sync=False)),
}
"""By rule: the problem and its twin."""

VARIANTS: dict[str, tuple[Callable[[Torch], None], frozenset[str]]] = {
    "many small copies beside the computing": (partial(train, step=copies.ahead), frozenset()),
    "an output that is looked at on the host": (partial(train, step=copies.logged), frozenset({"GD301", "GD303"})),
    "values read one by one": (partial(train, step=copies.read_one_by_one), frozenset()),
    "many small tensors in pageable memory": (
        partial(copies.features, packed=False, pinned=False),
        frozenset({"GD302"}),
    ),
    "a step of its own pace with a read at its end": (partial(launches, batch=65_536, reads=True), frozenset()),
    "a launch-bound step with a read at its end": (
        partial(launches, batch=4096, reads=True),
        frozenset({"GD202", "GD301"}),
    ),
    "attention on short sequences": (partial(layers.attending, fused=False, samples=256, length=32), frozenset()),
    "a formula for an activation on small tensors": (
        partial(layers.activating, fused=False, batch=512),
        frozenset({"GD201", "GD301"}),
    ),
    "running means of the weights": (layers.averaging, frozenset()),
    "convolutions in float32, without tensor cores": (
        partial(images.convolving, channels_last=False, dtype=FLOAT),
        frozenset({"GD402"}),
    ),
    "sizes of images that change, without a search": (
        partial(images.convolving, channels_last=True, sizes=4),
        frozenset({"GD301"}),
    ),
    "half of the layers of an odd width, in float32": (
        partial(layers.widening, width=2049, dtype=FLOAT),
        frozenset({"GD401", "GD402"}),
    ),
    "nothing reads a value: the host runs ahead": (
        partial(layers.widening, width=2049, reads_loss=False),
        frozenset({"GD207", "GD407"}),
    ),
}
"""Neighbours of the pairs: what is found, and nothing else gives a warning."""

PRICED = ("GD203", "GD204", "GD207", "GD208", "GD402", "GD403", "GD407", "GD408")
"""Pairs whose step times differ by what the finding's price says, on the GPU."""


def unread(program: Callable[[Torch], None]) -> Callable[[Torch], None]:
    """The same program, which reads no value: its host runs ahead of the GPU."""

    def without_reads(torch: Torch) -> None:
        torch.item = lambda _: None  # type: ignore[method-assign]
        program(torch)

    return without_reads


RECORDED_ONLY = frozenset({"GD304", "GD307", "GD410"})
"""Rules that want the source or the settings, which a trace does not have."""
