"""What becomes of the autograd graph that a call of a module builds: whether a backward call ever runs it.

A call is looked at when it is made from outside any other module: those of detail steps, and the first ones after a
model was switched to evaluation. Where its outputs have a graph, their nodes get a hook that runs when backward reaches
them, and that is destroyed with the node. So a graph that was freed without having run is known for certain to have
been built for nothing. Reading the counter of autograd nodes and setting a hook take microseconds; tensors, their
numbers and the order of the script's own hooks stay as they are.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from gpudoctor.recorder import saved_bytes, torch_private
from gpudoctor.recorder.call_results import CallResults
from gpudoctor.recorder.module_ranges import unwrapped
from gpudoctor.userfiles import UserFiles

FILE = "module_calls.json"
MAX_CALLS = 400  # a loop that calls single layers thousands of times a step would fill memory and say nothing new
MAX_TENSORS = 16  # of an output or input that is looked at: a cache of keys and values has hundreds
_MAX_DEPTH = 3
_MAX_PATH = 10_000  # nodes on the way through a graph, a microsecond each
_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(slots=True)
class _Graph:
    """The graph behind one output: `used` once backward ran its last node, `freed` once that node is gone."""

    used: bool = False
    freed: bool = False
    held: Any = None


class _Token:
    """Lives as long as the node whose hook holds it."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class _Call:
    """One call, as it is saved; see the table `module_calls`."""

    site: dict[str, Any]
    module: str
    training: bool
    seen: str
    start_ns: int
    end_ns: int
    nodes: int
    saved_bytes: int | None
    weights: int
    grad: bool
    repeats: int | None
    random: bool | None
    equal: bool | None = None
    graphs: list[_Graph] = field(default_factory=list)
    first: _Graph | None = None


@dataclass(slots=True)
class _Begun:
    module: Any
    site: dict[str, Any]
    sequence: int
    start_ns: int
    inputs: list[tuple[Any, int | None]]
    args: tuple[Any, ...]
    compare: bool
    drawn: tuple[Any, ...] | None
    state: tuple[Any, ...] | None


class ModuleCalls:
    """Collects the calls and what became of their graphs.

    Args:
        files: names the user's files.
        now: the recording's clock.

    Attributes:
        failed: the error that ended the watching; what was seen before is no whole.
    """

    def __init__(self, files: UserFiles, now: Callable[[], int]) -> None:
        self._files, self._now = files, now
        self._results = CallResults()
        self.failed: str | None = None
        self.in_backward = False
        """A module that is called now belongs to a recomputation, whose graph only fills in saved tensors."""
        self.note_hooks: Callable[[], None] = torch_private.hidden_from_dynamo(self._note_hooks)
        self.forget()

    def forget(self) -> None:
        """A forked child starts without its parent's calls."""
        self._calls: list[_Call] = []
        self._begun: _Begun | None = None
        self._hooks = False
        self._measured: set[tuple[Any, ...]] = set()
        self._inputs: dict[int, list[tuple[Any, list[tuple[Any, int | None]], tuple[Any, ...], int]]] = {}
        self._results.begin_burst()

    def begin_burst(self) -> None:
        """Inputs and results are compared within a burst only."""
        self._inputs.clear()
        self._results.begin_burst()

    def give_up(self, error: Exception) -> None:
        """Something went wrong in watching: nothing is watched any more, and the recording says so."""
        self.failed, self._begun = self.failed or repr(error), None
        self._results.begin_burst()

    def _note_hooks(self) -> None:
        """Tensors are saved under hooks from here on: to read them could start a recomputation."""
        self._hooks = True

    def enter(self, frame: FrameType, compare: bool) -> None:
        """A module is called from outside any other.

        Args:
            frame: that of `nn.Module.__call__`.
            compare: note whether its inputs were given to it before, what it returns, and whether it draws random
                numbers.
        """
        if self.failed is None:
            try:
                self._enter(frame, compare)
            except Exception as error:  # it would be raised in the user's code
                self.give_up(error)

    def _enter(self, frame: FrameType, compare: bool) -> None:
        self._begun, self._hooks = None, False
        sequence = torch_private.sequence_number()
        if sequence is None or self.in_backward or len(self._calls) >= MAX_CALLS:
            return
        module, args, kwargs = (frame.f_locals[name] for name in ("self", "args", "kwargs"))
        values = (*args, *kwargs.values())
        inputs = [(weakref.ref(t), _version(t)) for t in tensors(values)]
        plain = tuple(value for value in values if isinstance(value, bool | int | float | str | None))
        site = self._files.site(frame.f_back)
        drawn = torch_private.random_position() if compare else None
        state = self._results.state(module) if compare else None
        self._begun = _Begun(module, site, sequence, self._now(), inputs, plain, compare, drawn, state)

    def leave(self, result: Any, seen: str) -> bool:
        """The call returned.

        Args:
            result: what it returned; None as well when it raised.
            seen: profiled, evaluation or validation.

        Returns:
            whether it built a graph.
        """
        try:
            return self.failed is None and self._leave(result, seen)
        except Exception as error:  # it would be raised in the user's code
            self.give_up(error)
            return False

    def _leave(self, result: Any, seen: str) -> bool:
        begun, self._begun = self._begun, None
        if begun is None or result is None:
            return False
        end_ns, last = self._now(), torch_private.sequence_number()
        found = [t for t in tensors(result) if t.grad_fn is not None and t.grad_fn._sequence_nr() >= begun.sequence]
        training = bool(getattr(begun.module, "training", True))
        call = _Call(
            begun.site,
            type(unwrapped(begun.module)).__name__,
            training,
            seen,
            begun.start_ns,
            end_ns,
            (last or 0) - begun.sequence if found else 0,
            None,
            sum(_version(p) or 0 for p in _some(begun.module.parameters())),
            torch.is_grad_enabled(),
            self._repeats(begun),
            None if begun.drawn is None else begun.drawn != torch_private.random_position(),
        )
        place = (begun.site.get("file"), begun.site.get("line"), training)
        if found and not self._hooks and place not in self._measured:
            self._measured.add(place)
            known = [*begun.module.parameters(), *begun.module.buffers()]
            known += [t for ref, _ in begun.inputs if (t := ref()) is not None]
            call.saved_bytes = saved_bytes.of([t.grad_fn for t in found], begun.sequence, known)
        last_nodes = list({id(node): node for node in (t.grad_fn for t in found)}.values())
        call.graphs = [_watched(node) for node in last_nodes]
        if last_nodes:
            # a loss may hang on something inside of the module: what leads there begins with the same first node
            first = _first_node(last_nodes[0], begun.sequence)
            call.first = call.graphs[0] if first is last_nodes[0] else _watched(first)
        if begun.compare and begun.inputs:
            self._results.keep(len(self._calls), result, begun.state, call.repeats)
        self._calls.append(call)
        return bool(found)

    def _repeats(self, begun: _Begun) -> int | None:
        """Number of the first call of the same module with the very same inputs in this burst; None for none."""
        if not begun.compare or not begun.inputs:
            return None
        known = self._inputs.setdefault(id(begun.module), [])
        for _, inputs, _, number in known:
            if any(ref() is None for ref, _ in inputs):
                self._results.drop(number)
        for module, inputs, plain, number in known:
            same = len(inputs) == len(begun.inputs) and module() is begun.module and plain == begun.args
            if same and all(
                a() is not None and a() is b() and one is not None and one == other
                for (a, one), (b, other) in zip(inputs, begun.inputs, strict=True)
            ):
                return number
        known.append((weakref.ref(begun.module), begun.inputs, begun.args, len(self._calls)))
        return None

    def save(self, folder: Path) -> None:
        """Writes `module_calls.json`, after a burst or at the end: no profiler runs."""
        for number, equal in self._results.compare().items():
            self._calls[number].equal = equal
        content: Any = {"failed": self.failed} if self.failed else [_row(call) for call in self._calls]
        (folder / FILE).write_text(json.dumps(content), encoding="utf-8")


def _row(call: _Call) -> dict[str, Any]:
    return {
        **{name: call.site.get(name) for name in ("file", "line", "function")},
        "module": call.module,
        "training": call.training,
        "seen": call.seen,
        "start_ns": call.start_ns,
        "dur_ns": call.end_ns - call.start_ns,
        "nodes": call.nodes,
        "saved_bytes": call.saved_bytes,
        "weights": call.weights,
        "grad": call.grad,
        "repeats": call.repeats,
        "random": call.random,
        "equal": call.equal,
        "outputs": len(call.graphs),
        "used": sum(graph.used for graph in call.graphs),
        "inside": bool(call.first is not None and call.first.used),
        "freed": sum(graph.freed and not graph.used for graph in call.graphs),
    }


def _version(tensor: Any) -> int | None:
    """How often a tensor was changed in place; None for an inference tensor, which does not count it."""
    return None if tensor.is_inference() else int(tensor._version)


def _some(parameters: Iterator[Any]) -> Iterator[Any]:
    """The first few: an optimizer that steps changes all of them."""
    for _, parameter in zip(range(4), parameters, strict=False):
        yield parameter


def _first_node(node: Any, since: int) -> Any:
    """The node that the others lead to, as far down as autograd's numbers are at least `since`."""
    for _ in range(_MAX_PATH):
        following = [one for one, _ in node.next_functions if one is not None and one.name() != _LEAF]
        lower = min((one for one in following if one._sequence_nr() >= since), key=_sequence, default=None)
        if lower is None:
            return node
        node = lower
    return node


def _sequence(node: Any) -> int:
    return int(node._sequence_nr())


def _watched(node: Any) -> _Graph:
    """Has a node tell when backward runs it, and when it is destroyed."""
    graph, token = _Graph(), _Token()

    def ran(gradients: Any, _token: _Token = token) -> None:
        graph.used = True

    def gone(_: Any) -> None:
        graph.freed = True

    node.register_prehook(torch_private.as_torch_code(ran))
    graph.held = weakref.ref(token, gone)
    return graph


def tensors(value: Any) -> list[Any]:
    """The first tensors in a value: tuples, lists, mappings and plain objects with attributes are looked into."""
    found: list[Any] = []
    _collect(value, found, 0)
    return found


def _collect(value: Any, found: list[Any], depth: int) -> None:
    if len(found) >= MAX_TENSORS or depth > _MAX_DEPTH:
        return
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, tuple | list):
        parts = value
    elif hasattr(value, "__dataclass_fields__"):
        parts = vars(value).values() if hasattr(value, "__dict__") else ()
    else:
        return
    for part in list(parts)[:MAX_TENSORS]:
        _collect(part, found, depth + 1)
