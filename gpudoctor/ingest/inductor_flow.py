"""Which nodes of the graph each call in the output code computes.

Triton kernels list their nodes in a comment. C++ kernels do not: theirs follow from the buffers. What a library call
takes and returns, and what the graph takes and returns, have names in the graph; a kernel between them computes the
nodes between the names it reads and the names it writes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from gpudoctor.ingest.inductor_graph import Graph, Node
from gpudoctor.ingest.inductor_kernels import Kernel
from gpudoctor.ingest.inductor_wrapper import Buffer, Call, Code

Value = tuple[int, int]
"""What one call left in one storage: index of the call (-1: an input of the graph) and the storage."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The nodes of one call.

    Attributes:
        nodes: in the graph's order.
        certain: each of them is the call's. Else some are of neighbours that cannot be told from it.
        complete: and it has no others.
    """

    nodes: tuple[Node, ...] = ()
    certain: bool = False
    complete: bool = False


@dataclass(slots=True)
class Traffic:
    """What one call reads and writes.

    Attributes:
        reads: for each buffer that it reads what lies in it, in the order of the arguments; a buffer that nothing was
            written to is left out.
        writes: the values it makes.
        read_buffers: the buffers themselves, each once, with the bytes of an element.
        write_buffers: likewise.
    """

    reads: list[Value | None] = field(default_factory=list)
    writes: list[Value] = field(default_factory=list)
    read_buffers: list[tuple[Buffer, int | None]] = field(default_factory=list)
    write_buffers: list[tuple[Buffer, int | None]] = field(default_factory=list)


def traffic(code: Code) -> tuple[list[Traffic], dict[int, Value | None]]:
    """What each call reads and writes, and what lies in each storage in the end (None: parts of several calls)."""
    content: dict[int, Value | None] = {buffer.storage: (-1, buffer.storage) for buffer in code.inputs}
    largest: dict[int, int] = {}
    found = []
    for at, call in enumerate(code.calls):
        one = Traffic()
        for buffer, reads, writes, item_bytes in _roles(code, call):
            largest[buffer.storage] = max(largest.get(buffer.storage, 0), buffer.numel or 0)
            if reads and buffer.storage in content:
                one.reads.append(content[buffer.storage])
                one.read_buffers.append((buffer, item_bytes))
            if writes:
                one.writes.append((at, buffer.storage))
                one.write_buffers.append((buffer, item_bytes))
        for (_, storage), (buffer, _) in zip(one.writes, one.write_buffers, strict=True):
            # kernels that each fill a part of one buffer (a concatenation) leave no single value
            part = storage in content and (buffer.numel or 0) < largest[storage]
            content[storage] = None if part else (at, storage)
        found.append(one)
    return found, content


def _roles(code: Code, call: Call) -> list[tuple[Buffer, bool, bool, int | None]]:
    """(buffer, read, written, bytes of an element) of a call's tensors."""
    kernel = code.kernels.get(call.target) if call.kernel else None
    if kernel is None:
        given = [(buffer, True, False, None) for buffer in call.arguments if buffer is not None]
        if call.result is not None:
            return [*given, (call.result, False, True, None)]
        return [(buffer, True, at == 0, None) for at, (buffer, _, _, _) in enumerate(given)]
    if not known_arguments(kernel, call):  # each may be read and written
        return [(buffer, True, True, None) for buffer in call.arguments if buffer is not None]
    return [
        (buffer, role.reads, role.writes, role.item_bytes)
        for buffer, role in zip(call.arguments, kernel.arguments, strict=False)
        if buffer is not None
    ]


def known_arguments(kernel: Kernel, call: Call) -> bool:
    """Whether a call passes a buffer for each of its kernel's pointers, and for nothing else."""
    passed = [at for at, buffer in enumerate(call.arguments) if buffer is not None]
    return bool(passed) and passed == [at for at, role in enumerate(kernel.arguments) if role.pointer]


def packet(target: str) -> str:
    """The operator that a library call stands for: `aten.addmm` for `extern_kernels.addmm`."""
    name = target.removeprefix("torch.ops.").replace("extern_kernels.bias_", "extern_kernels.")
    parts = name.replace("extern_kernels.", "aten.").split(".")
    return ".".join(parts[:2]).rstrip("_")


def nodes_of_calls(code: Code, graph: Graph) -> list[Computed]:
    """For each call the nodes it computes."""
    flow, content = traffic(code)
    names: dict[Value, str] = {(-1, buffer.storage): buffer.name for buffer in code.inputs}
    extern = _extern_nodes(code, graph, flow, names)
    for at, name in extern.items():
        _name_arguments(flow[at], graph, name, names)
    if len(code.outputs) == len(graph.outputs):
        for buffer, output in zip(code.outputs, graph.outputs, strict=True):
            value = content.get(buffer.storage) if buffer is not None else None
            if value is not None and (source := graph.source(output)) is not None:
                names.setdefault(value, source)
    _name_mutations(code, graph, content, names)
    never = {packet(call.target) for call in code.calls if not call.kernel}
    stops = {node.name for node in graph.nodes.values() if node.op.rstrip("_") in never}
    kept = [buffer for buffer in (*code.outputs, *code.inputs) if buffer is not None]
    used = {value for one in flow for value in one.reads} | {content.get(buffer.storage) for buffer in kept}
    found: list[Computed] = []
    for at, call in enumerate(code.calls):
        listed = tuple(graph.nodes[name] for name in code.fragments.get(call.target, ()) if name in graph.nodes)
        if at in extern:
            found.append(Computed((graph.nodes[extern[at]],), True, True))
        elif call.kernel and listed:
            found.append(Computed(listed, True, True))
        elif call.kernel:
            found.append(_between(flow[at], graph, names, stops, used))
        else:
            found.append(Computed())
    return found


def _extern_nodes(code: Code, graph: Graph, flow: list[Traffic], names: dict[Value, str]) -> dict[int, str]:
    """The node of each library call; `names` gains what these calls write.

    Calls of one operator are in the graph in the order of their buffers' numbers. Calls without a buffer of their own
    (a wait for communication) can have been moved: there the argument tells.
    """
    calls: dict[str, list[int]] = defaultdict(list)
    for at, call in enumerate(code.calls):
        if not call.kernel:
            calls[packet(call.target)].append(at)
    nodes: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes.values():
        nodes[node.op.rstrip("_")].append(node.name)
    found: dict[int, str] = {}
    moved: list[int] = []
    for op, places in calls.items():
        numbers = {at: _number(code.calls[at].result) for at in places}
        if len(places) > 1 and None in numbers.values():
            moved += places
        elif len(places) == len(nodes[op]):  # else some of them became part of generated kernels
            found |= dict(zip(sorted(places, key=lambda at: numbers[at] or 0), nodes[op], strict=True))
    for at, name in found.items():
        names |= dict.fromkeys(flow[at].writes, name)
    for at in sorted(moved):
        given = next(iter(flow[at].reads), None)
        source = names.get(given) if given is not None else None
        fitting = [
            name
            for name in nodes[packet(code.calls[at].target)]
            if source is not None and (inputs := graph.nodes[name].inputs) and graph.source(inputs[0]) == source
        ]
        if len(fitting) == 1:
            found[at] = fitting[0]
            names |= dict.fromkeys(flow[at].writes, fitting[0])
    return found


def _number(buffer: Buffer | None) -> int | None:
    digits = re.fullmatch(r"buf(\d+)", buffer.name) if buffer is not None else None
    return int(digits[1]) if digits else None


def _name_arguments(flow: Traffic, graph: Graph, name: str, names: dict[Value, str]) -> None:
    """A library call's arguments are its node's, in the same order."""
    inputs = graph.nodes[name].inputs
    if len(flow.reads) != len(inputs) and not graph.nodes[name].op.endswith("convolution"):
        return
    for value, given in zip(flow.reads, inputs, strict=False):
        if value is not None and (source := graph.source(given)) is not None:
            names.setdefault(value, source)


def _name_mutations(code: Code, graph: Graph, content: dict[int, Value | None], names: dict[Value, str]) -> None:
    """What an input holds in the end is what the graph copies into it: running statistics, parameters."""
    storages = {buffer.name: buffer.storage for buffer in code.inputs}
    for node in graph.nodes.values():
        if node.op == "aten.copy_" and len(node.inputs) == 2 and node.inputs[0] in storages:
            value, source = content.get(storages[node.inputs[0]]), graph.source(node.inputs[1])
            if value is not None and value[0] >= 0 and source is not None:
                names.setdefault(value, source)


def _between(
    flow: Traffic, graph: Graph, names: dict[Value, str], stops: set[str], used: set[Value | None]
) -> Computed:
    outputs = [names[value] for value in flow.writes if value in names]
    reads = [None if value is None else names.get(value) for value in flow.reads]
    known = {name for name in reads if name is not None} | stops
    found = [node for node in graph.between(outputs, frozenset(known - set(outputs))) if node.name not in stops]
    # a buffer that nobody reads afterwards is the kernel's own scratch: what it holds lies in between
    whole = all(value in names for value in flow.writes if value in used)
    certain = bool(outputs) and None not in reads
    return Computed(tuple(found), certain, certain and whole)
