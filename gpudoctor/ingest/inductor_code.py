"""Inductor's output code, as the structured compile log has it, as rows of `generated_kernels` and `extern_calls`.

A graph's output code follows the graph it was made from; what INDUCTOR_PROVENANCE=1 adds follows the code. A warm cache
logs the same records as a cold one. The user's lines come from the provenance where it is there, else from the graph.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.ingest.inductor_flow import known_arguments, nodes_of_calls, packet, traffic
from gpudoctor.ingest.inductor_graph import Graph, Line, Node, parse_graph
from gpudoctor.ingest.inductor_unfused import unfused
from gpudoctor.ingest.inductor_wrapper import Buffer, Call, Code, read_code
from gpudoctor.ingest.op_classes import op_class
from gpudoctor.userfiles import UserFiles

Row = dict[str, Any]

GRAPHS = ("inductor_post_grad_graph", "after_post_grad_graph")
CODE = "inductor_output_code"
PROVENANCE = "inductor_provenance_tracking_kernel_stack_traces"
"""Names of the records from torch 2.7 to 2.13: between them `after_post_grad_graph`; provenance is from 2.9 on."""

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.M)
_FALLBACKS = ("aten", "prims")
_LOWERED = frozenset(
    (
        *("add", "sub", "mul", "div", "neg", "abs", "pow", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "relu"),
        *("where", "clamp", "maximum", "minimum", "sum", "mean", "amax", "amin", "var_mean", "clone", "copy", "cat"),
    )
)
"""Operators that Inductor's lowerings (torch/_inductor/lowering.py) give code on every device, for real dtypes."""


@dataclass(slots=True)
class Generated:
    """The output code of one graph, with what belongs to it.

    Attributes:
        compile_id: compilation it belongs to.
        filename: the generated file.
        text: the code.
        graph: the graph's text; None when it is not in the log.
        traces: by provenance key, the stack traces of the fused nodes.
    """

    compile_id: str
    filename: str | None
    text: str
    graph: str | None
    traces: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class CodeTables:
    """Rows of both tables, and where in the generated files the calls are.

    Attributes:
        kernels: rows of `generated_kernels`.
        calls: rows of `extern_calls`.
        places: by generated file (as tables name it) and line, the row that is called there and that call's own line.
    """

    kernels: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    places: dict[tuple[str, int], tuple[Row, Line | None]] = field(default_factory=dict)


def has_code(metadata: Mapping[str, Any]) -> bool:
    """Whether a record's payload is output code, or belongs to it."""
    return not _names(metadata).isdisjoint({*GRAPHS, CODE, PROVENANCE})


def _names(metadata: Mapping[str, Any]) -> Set[str]:
    """What a record is: its artifact's name, else the keys of its metadata."""
    artifact = metadata.get("artifact")
    return {str(artifact.get("name"))} if isinstance(artifact, dict) else metadata.keys()


class CodeLog:
    """Collects the records of a compile log that have output code in them."""

    def __init__(self) -> None:
        self._graphs: dict[str, str] = {}
        self._codes: list[Generated] = []

    def add(self, compile_id: str, metadata: Mapping[str, Any], payload: str) -> None:
        """Takes one record; one that has nothing to do with output code is passed over."""
        names = _names(metadata)
        if not names.isdisjoint(GRAPHS):
            self._graphs[compile_id] = payload
        elif CODE in names:
            said = metadata.get(CODE)
            filename = said.get("filename") if isinstance(said, dict) else None
            graph = self._graphs.pop(compile_id, None)
            self._codes.append(Generated(compile_id, str(filename) if filename else None, payload, graph))
        elif PROVENANCE in names and self._codes and self._codes[-1].compile_id == compile_id:
            self._codes[-1].traces = _traces(payload)

    def tables(self, files: UserFiles) -> CodeTables:
        """Reads what was collected. A graph that was loaded from the cache again counts once.

        Args:
            files: names the user's files.
        """
        made = CodeTables()
        newest: dict[tuple[str, str | None], tuple[Generated, Code]] = {}
        for generated in self._codes:
            code = read_code(generated.text)
            key = generated.compile_id, code.graph
            if generated.graph is None and key in newest:  # what came from the cache is not always printed again
                generated.graph = newest[key][0].graph
            newest[key] = generated, code
        for generated, code in newest.values():
            _Rows(generated, code, files).add_to(made)
        return made


def _traces(payload: str) -> dict[str, list[str]]:
    try:
        content = json.loads(payload)
    except ValueError:
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(key): [str(text) for text in texts] for key, texts in content.items() if isinstance(texts, list)}


class _Rows:
    """Makes the rows of one graph's code."""

    def __init__(self, generated: Generated, code: Code, files: UserFiles) -> None:
        self._generated, self._code, self._files = generated, code, files
        graph = parse_graph(generated.graph, files) if generated.graph is not None else Graph()
        self._flow, _ = traffic(code)
        self._nodes = nodes_of_calls(code, graph)
        self._common = {"compile_id": generated.compile_id, "graph": code.graph, "direction": code.direction}

    def add_to(self, made: CodeTables) -> None:
        file = self._generated.filename
        name = None if file is None else self._files.name(file) or file
        places = [self._lines(at, call) for at, call in enumerate(self._code.calls)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for at, call in enumerate(self._code.calls):
            key = (call.target,) if call.kernel else (call.target, *places[at][0][:1])
            groups.setdefault(key, []).append(at)
        uncalled = self._code.kernels.keys() - {call.target for call in self._code.calls if call.kernel}
        missed = unfused(self._code, self._flow)
        for calls in groups.values():
            first = self._code.calls[calls[0]]
            row = self._common | {"position": calls[0], "calls": len(calls)} | self._said(calls, places)
            if first.kernel:
                row |= self._kernel(calls) | missed.get(first.target, {})
                made.kernels.append(row)
            else:
                row |= _extern(first)
                made.calls.append(row)
            if name is not None:
                for at in calls:
                    lines = places[at][0]
                    made.places[name, self._code.calls[at].line] = row, self._main([at], lines)
        for kernel in sorted(uncalled):
            # a part that another kernel is made of, or code whose calls could not be read
            found = self._code.kernels[kernel]
            said = {"kernel": kernel, "kind": found.kind, "reduction": found.reduction, "code": found.source}
            made.kernels.append(self._common | said)

    def _lines(self, at: int, call: Call) -> tuple[list[Line], str | None]:
        """The user's lines that a call computes, one for each node or trace, and how they are known."""
        traces = self._generated.traces
        texts = traces.get(call.handle or "") or traces.get(call.target) or []
        found = [line for text in texts if (line := self._innermost(text)) is not None]
        if found:
            return found if call.kernel else found[:1], "provenance"
        computed = self._nodes[at]
        lines = [node.line for node in _working(computed.nodes) if node.line is not None]
        if not lines or not (computed.certain or len(set(lines)) == 1):
            return [], None
        listed = call.kernel and bool(self._code.fragments.get(call.target))
        return lines, "comment" if listed else "dataflow"

    def _innermost(self, trace: str) -> Line | None:
        for file, line, function in reversed(_FRAME.findall(trace)):
            if (shown := self._files.name(file)) is not None:
                return shown, int(line), function if function.isidentifier() else None
        return None

    def _said(self, calls: Sequence[int], places: Sequence[tuple[list[Line], str | None]]) -> Row:
        lines = [line for at in calls for line in places[at][0]]
        main = self._main(calls, lines)
        complete = all(self._nodes[at].complete for at in calls)
        nodes = [node for at in calls for node in self._nodes[at].nodes] if complete else []
        comment = [op for at in calls for op in self._code.calls[at].ops] if self._code.calls[calls[0]].kernel else []
        # a library call's comment lists what was computed in front of it as well
        ops = comment or [node.op for node in _working(nodes) if node.op != "getitem"]
        return {
            "ops": _text(ops),
            "nodes": _text([node.name for node in _working(nodes)]),
            "file": main[0] if main else None,
            "line": main[1] if main else None,
            "function": main[2] if main else None,
            "lines": json.dumps(list(dict.fromkeys(f"{line[0]}:{line[1]}" for line in lines))) if lines else None,
            "line_source": next((places[at][1] for at in calls if places[at][1]), None),
        }

    def _main(self, calls: Sequence[int], lines: Sequence[Line]) -> Line | None:
        """The line that most nodes come from, the first of these; a library call has one.

        Traces name each place once, however much of it was fused: nodes weigh better where they are known.
        """
        if not lines:
            return None
        if not self._code.calls[calls[0]].kernel:
            return lines[0]
        nodes = [node.line for at in calls for node in _working(self._nodes[at].nodes) if self._nodes[at].certain]
        weighed = [line for line in nodes if line in set(lines)]
        return Counter(weighed or lines).most_common(1)[0][0]

    def _kernel(self, calls: Sequence[int]) -> Row:
        kernel = self._code.kernels[self._code.calls[calls[0]].target]
        flows = [self._flow[at] for at in calls]
        known = all(known_arguments(kernel, self._code.calls[at]) for at in calls)
        both = {a.name for a in kernel.arguments if a.reads and a.writes}
        return {
            "kernel": kernel.name,
            "kind": kernel.kind,
            "loads": len(flows[0].read_buffers) if known else None,
            "stores": len(flows[0].write_buffers) if known else None,
            "load_bytes": _bytes([item for flow in flows for item in flow.read_buffers]) if known else None,
            "store_bytes": _bytes([item for flow in flows for item in flow.write_buffers]) if known else None,
            "reduction": kernel.reduction,
            "in_place": len(both) if known else None,
            "copy": kernel.copy,
            "code": kernel.source,
        }


def _extern(call: Call) -> Row:
    op = packet(call.target)
    space, _, short = op.partition(".")
    library = call.target.startswith("extern_kernels.")
    return {
        "name": call.target,
        "op": op,
        "op_class": op_class(f"aten::{short}") if space in _FALLBACKS or library else "other",
        "fallback": not library and space in _FALLBACKS,
        "has_lowering": space in _FALLBACKS and short in _LOWERED,
    }


def _working(nodes: Iterable[Node]) -> list[Node]:
    """Nodes that compute; all of them when none does (a kernel that only moves elements)."""
    nodes = list(nodes)
    return [node for node in nodes if not node.view] or nodes


def _text(items: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(items)) or None


def _bytes(buffers: Sequence[tuple[Buffer, int | None]]) -> int | None:
    total = 0
    for buffer, item_bytes in buffers:
        if buffer.numel is None or item_bytes is None:
            return None
        total += buffer.numel * item_bytes
    return total
