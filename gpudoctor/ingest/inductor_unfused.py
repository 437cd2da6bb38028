"""Generated kernels that follow each other and pass a buffer on, though both go over the same elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpudoctor.ingest.inductor_flow import Traffic
from gpudoctor.ingest.inductor_wrapper import Code


def unfused(code: Code, flow: Sequence[Traffic]) -> dict[str, dict[str, Any]]:
    """By kernel: the kernel in front of it that it was not fused with, and the bytes that are moved twice for that.

    Counted is what a pointwise kernel writes and the next generated kernel of its kind reads, all of it, with no
    library call in between, when what that one goes over has as many elements. Inductor fuses such pairs unless
    something forbids it (a limit on the kernel's size or reads, another order of the elements, a mutation).
    """
    found: dict[str, dict[str, Any]] = {}
    for at in range(1, len(code.calls)):
        before, after = code.calls[at - 1], code.calls[at]
        if not (before.kernel and after.kernel) or before.target == after.target:
            continue
        first, second = code.kernels[before.target], code.kernels[after.target]
        if first.kind != second.kind or first.reduction is not False or second.reduction is None:
            continue
        sizes = {buffer.numel for buffer, _ in flow[at - 1].write_buffers}
        (size,) = sizes if len(sizes) == 1 else (None,)
        if size is None or size != _extent(flow[at]):
            continue
        twice = 0
        for value, (buffer, item_bytes) in zip(flow[at].reads, flow[at].read_buffers, strict=True):
            if value is not None and value[0] == at - 1 and buffer.numel == size:
                twice += 2 * size * (item_bytes or 0)
        if twice:
            row = found.setdefault(after.target, {"unfused_with": before.target, "unfused_bytes": 0})
            row["unfused_bytes"] += twice
    return found


def _extent(flow: Traffic) -> int | None:
    """Elements that a kernel goes over: those of its largest buffer."""
    sizes = [buffer.numel for buffer, _ in (*flow.read_buffers, *flow.write_buffers)]
    return None if None in sizes or not sizes else max(size or 0 for size in sizes)
