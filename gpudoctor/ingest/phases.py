"""Says what a step was doing when an operator ran: input, forward, backward, optimizer or other.

Ranges in the trace say it for the loader, backward calls and optimizers. The rest is inferred: what runs before the
step's last backward call is forward, what runs after it is other. Two cases need more: an optimizer that gets a closure
runs forward and backward inside its own range, and an update by hand has no range at all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpudoctor.ingest.kineto import Node

BACKWARD = "gpudoctor::backward"
_STEP = "Optimizer.step#"
_NAMED = (
    ("enumerate(DataLoader)#", "input"),
    (BACKWARD, "backward"),
    ("autograd::engine::", "backward"),
    (_STEP, "optimizer"),
    ("Optimizer.zero_grad#", "optimizer"),
)
_UPDATES = re.compile(r"aten::(_foreach_)?(add|sub|mul|div|addcmul|addcdiv|lerp|copy)_$")
"""In-place arithmetic, of which an update by hand consists."""


class Phases:
    """Phases of the operators of one trace.

    Args:
        nodes: all operators and ranges, callers first.
        starts: when the profiled steps began, in order.
        by_hand: steps end at backward calls, so the update by hand comes first in the next one.
    """

    def __init__(self, nodes: Sequence[Node], starts: Sequence[int], by_hand: bool) -> None:
        self._starts = starts
        self._last_backward: dict[int, int] = {}
        self._closures: dict[int, list[Node]] = {}
        self._around: set[int] = set()
        self._recorded: set[int] = set()
        self._calls: list[Node] = []
        self._hand: dict[int, int] = {}
        for node in nodes:
            if node.name == BACKWARD or node.name.startswith("autograd::engine::"):
                window = self._window(node)
                self._last_backward[window] = max(node.start_ns, self._last_backward.get(window, node.start_ns))
            if node.name == BACKWARD:
                self._calls.append(node)
                self._note_closure(node)
        if self._closures:
            for node in nodes:
                if _recorded(node):
                    self._recorded.update(id(one) for one in _upwards(node))
        self._calls.sort(key=lambda call: call.start_ns)
        if by_hand:
            self._find_updates(nodes)

    def _window(self, node: Node) -> int:
        return bisect_right(self._starts, node.start_ns) - 1

    def _note_closure(self, backward: Node) -> None:
        path = list(_upwards(backward.parent))
        for at, node in enumerate(path):
            if node.name.startswith(_STEP):
                self._closures.setdefault(id(node), []).append(backward)
                self._around.update(id(one) for one in path[:at])
                return

    def _find_updates(self, nodes: Sequence[Node]) -> None:
        forward: set[int] = set()
        for node in nodes:
            window = self._window(node)
            if window in forward or node.name.startswith("ProfilerStep#"):
                continue
            if _recorded(node) or node.name == BACKWARD:
                forward.add(window)
            elif _UPDATES.match(node.name) and not (node.parent and node.parent.name.startswith("aten::")):
                self._hand[window] = node.end_ns

    def of(self, node: Node, above: Mapping[str, Any] | None) -> str:
        """The phase of an operator; `above` is the row of its caller."""
        named = next((phase for name, phase in _NAMED if node.name.startswith(name)), None)
        if named is not None:
            return named
        if node.parent is not None and (id(node.parent) in self._closures or id(node.parent) in self._around):
            return self._in_closure(node)
        if above is not None:
            return str(above["phase"])
        if self._during_backward(node):
            return "backward"
        window = self._window(node)
        if node.start_ns < self._hand.get(window, 0):
            return "optimizer"
        return "forward" if node.start_ns <= self._last_backward.get(window, node.start_ns) else "other"

    def _during_backward(self, node: Node) -> bool:
        """Whether another thread's work was handed over by a backward call: the reduction of gradients, say."""
        at = bisect_right(self._calls, node.start_ns, key=lambda call: call.start_ns) - 1
        return at >= 0 and node.start_ns < self._calls[at].end_ns and node.thread != self._calls[at].thread

    def _in_closure(self, node: Node) -> str:
        """The phase of what an optimizer's step, or a range around its closure, calls directly."""
        if id(node) in self._around:
            return "forward"
        calls = next(self._closures[id(one)] for one in _upwards(node.parent) if id(one) in self._closures)
        closure = id(node.parent) in self._around
        if node.start_ns >= calls[-1].start_ns:
            return "other" if closure else "optimizer"
        # between two calls of the closure the optimizer works without autograd
        forward = closure or node.start_ns < calls[0].start_ns or id(node) in self._recorded
        return "forward" if forward else "optimizer"


def _upwards(node: Node | None) -> Iterable[Node]:
    while node is not None:
        yield node
        node = node.parent


def _recorded(node: Node) -> bool:
    """Whether autograd recorded the operator: it is part of a forward (or of a backward, which repeats its number)."""
    number = node.args.get("Sequence number")
    return number is not None and int(number) >= 0


def mark_transfers(ops: Sequence[dict[str, Any]], kernels: Sequence[Mapping[str, Any]]) -> None:
    """Sets the phase `transfer` on operators of the forward that copy from the host to a device, callers included."""
    by_id = {op["op"]: op for op in ops}
    for kernel in kernels:
        op = by_id.get(kernel["op"]) if kernel["direction"] == "h2d" else None
        while op is not None and op["phase"] == "forward" and str(op["name"]).startswith("aten::"):
            op["phase"] = "transfer"
            op = by_id.get(op["parent"])


def mark_compiled_optimizers(ops: Iterable[dict[str, Any]], compilations: Iterable[Mapping[str, Any]]) -> None:
    """Sets the phase `optimizer` on what runs in a compiled region of an optimizer's own code."""
    regions = {row["compile_id"] for row in compilations if "torch/optim/" in str(row["file"]).replace("\\", "/")}
    for op in ops:
        if op["region"] in regions and op["phase"] in ("forward", "other"):
            op["phase"] = "optimizer"
