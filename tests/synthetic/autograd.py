"""Operators as torch runs them: dispatch, kernels, and a node for the way back; and the engine that works it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.synthetic.hardware import US, Kernel
from tests.synthetic.host import AUTOGRAD, MAIN
from tests.synthetic.kernels import fill, pointwise
from tests.synthetic.machine import Machine
from tests.synthetic.tensors import Node, Tensor

HAND_OVER_NS = 9 * US
"""From a backward call to the first node on autograd's thread."""

Concrete = Sequence[str]


class Autograd:
    """A machine that runs operators.

    Attributes:
        machine: the machine.
        recording_graph: whether autograd records (`no_grad`).
        accumulated: called with each parameter when its gradient is ready.
        finished: called when a backward pass is done, on autograd's thread.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.host = machine.host
        self.recording_graph = True
        self.accumulated: list[Callable[[Tensor], None]] = []
        self.finished: list[Callable[[], None]] = []
        self._sequence = 0

    # -- operators -----------------------------------------------------------------------------------------------

    @contextmanager
    def op(self, name: str, inputs: Sequence[Any] = (), grad: bool | None = None) -> Iterator[None]:
        """An operator with its inputs: tensors, lists of tensors, or the text of another argument.

        Args:
            name: its name.
            inputs: its arguments.
            grad: whether it takes part in autograd's graph; by its inputs by default.
        """
        dims, types, concrete, strides = [], [], [], []
        for one in inputs:
            if isinstance(one, Tensor):
                dims.append(list(one.shape))
                types.append(one.dtype)
                strides.append(one.strides)
                concrete.append("")
            elif isinstance(one, list):
                dims.append([list(tensor.shape) for tensor in one])
                types.append("TensorList")
                strides.append([tensor.strides for tensor in one])
                concrete.append("")
            else:
                text = str(one)
                dims.append([])
                types.append("ScalarList" if text.startswith("[") else "Scalar" if text else "")
                strides.append([])
                concrete.append(text)
        args: dict[str, Any] = {}
        tracked = any(isinstance(one, Tensor) and one.needs_grad for one in inputs) if grad is None else grad
        if tracked and self.recording_graph and self.host.thread == MAIN:
            args = {"Sequence number": self._sequence, "Fwd thread id": 0}
        shown = {"Concrete Inputs": concrete, "Input type": types, "Input Strides": strides, "Input Dims": dims}
        with self.host.op(name, **args, **shown):
            yield

    def nested(self, names: Sequence[str], inputs: Sequence[Any], kernels: Iterable[Kernel]) -> None:
        """Operators one inside another, the innermost of which launches kernels."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self.op(name, inputs))
            for kernel in kernels:
                self.machine.launch(kernel)

    def made(self, out: Tensor, name: str, inputs: Sequence[Tensor], backward: Callable[[], None]) -> Tensor:
        """Gives an operator's result its node."""
        wanted = [tensor for tensor in inputs if tensor.needs_grad]
        if not wanted or not self.recording_graph:
            return out
        parents = [tensor.node for tensor in wanted if tensor.node is not None]
        out.node = Node(name, self._sequence, backward, parents, [t for t in wanted if t.parameter])
        self._sequence += 1
        return out

    def empty(self, tensor: Tensor) -> None:
        """`aten::empty`: memory from the allocator's cache."""
        with self.op("aten::empty", [str(list(tensor.shape)), "6", "0", "", "False", ""]):
            pass

    # -- backward ------------------------------------------------------------------------------------------------

    def backward(self, loss: Tensor) -> None:
        """`loss.backward()`."""
        with self._call():
            with self.op("aten::ones_like", [loss]):
                self.nested(["aten::fill_"], [loss], [fill(loss)])
            self.host.think(HAND_OVER_NS)
            with self.host.on_thread(AUTOGRAD):
                for node in _order(loss.node):
                    self._evaluate(node)
                for hook in self.finished:
                    hook()
            self.host.think(HAND_OVER_NS)

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self.host.inside("torch/_tensor.py(592): backward"), ExitStack() as stack:
            if self.host.marks:
                stack.enter_context(self.host.op("gpudoctor::backward"))
            yield

    def _evaluate(self, node: Node) -> None:
        args = {"Sequence number": node.sequence, "Fwd thread id": 1}
        with self.host.op(f"autograd::engine::evaluate_function: {node.name}", **args):
            with self.host.op(node.name, **args):
                node.run()
        node.run = _released
        for leaf in node.leaves:
            self._accumulate(leaf)
        node.parents, node.leaves = [], []

    def _accumulate(self, leaf: Tensor) -> None:
        name = "torch::autograd::AccumulateGrad"
        with self.host.op(f"autograd::engine::evaluate_function: {name}"):
            with self.host.op(name):
                if leaf.grad:
                    self.nested(["aten::add_"], [leaf, leaf, "1"], [pointwise("add", [leaf, leaf], leaf)])
                else:
                    self.nested(["aten::detach"], [leaf], [])
            leaf.grad = True
            for hook in self.accumulated:
                hook(leaf)


def _released() -> None:
    raise RuntimeError("backward through the same graph a second time")


def _order(root: Node | None) -> list[Node]:
    """The nodes below one, latest first."""
    seen: dict[int, Node] = {}
    left = [root] if root is not None else []
    while left:
        node = left.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            left += node.parents
    return sorted(seen.values(), key=lambda node: -node.sequence)
