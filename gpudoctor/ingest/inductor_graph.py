"""The graph that Inductor lowers, as torch prints it after the post-grad passes: nodes, inputs, the user's lines.

One statement a node, `name: "type" = torch.ops.aten.mul.Tensor(a, b);  a = None`, below a comment
`# File: model.py:21 in forward, code: …` that holds for the nodes up to the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpudoctor.userfiles import UserFiles

_PLACE = re.compile(r"^\s*# File: (.+?):(\d+) in ([^,]*)")
_NODE = re.compile(r"^\s*(\w+)(?:: *\"[^\"]*\")? = ([\w.]+)([(\[].*)$")
_NAME = re.compile(r"(?<![\w.'\"])([A-Za-z_]\w*)(?![\w(.'\"]| = )")
_TYPED = re.compile(r"(\w+): *\"")

VIEWS = frozenset(
    (
        *("alias", "as_strided", "diagonal", "expand", "getitem", "permute", "reinterpret_tensor", "reshape", "select"),
        *("slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "_unsafe_view", "unsqueeze"),
        "view",
    )
)
"""Nodes that no code is generated for: they look at the same elements."""

Line = tuple[str, int, str | None]
"""A line of the user's: file, line, function."""


@dataclass(frozen=True, slots=True)
class Node:
    """One call in the graph.

    Attributes:
        name: its name, unique in the graph.
        op: what is called, e.g. `aten.mul`; `getitem` for an element of a tuple.
        inputs: names of the nodes it takes, in order; one may occur twice.
        line: the user's line; None when the code is not the user's or unknown.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    line: Line | None

    @property
    def view(self) -> bool:
        """Whether it only looks at its input in another way."""
        return self.op.rpartition(".")[2] in VIEWS


@dataclass(slots=True)
class Graph:
    """The graph of one compiled forward or backward.

    Attributes:
        inputs: names of its inputs.
        nodes: by name, in the order of the text.
        outputs: what it returns, in order; None for what is no node.
    """

    inputs: tuple[str, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict)
    outputs: tuple[str | None, ...] = ()

    def source(self, name: str | None) -> str | None:
        """The node or input that `name` is a view of; itself when it is none. A tuple's element is its own source."""
        while name is not None and (node := self.nodes.get(name)) is not None and node.view:
            if node.op == "getitem" or not node.inputs:
                break
            name = node.inputs[0]
        return name

    def between(self, outputs: Iterable[str], known: frozenset[str]) -> list[Node]:
        """The nodes that compute `outputs` from what is in `known`, in the graph's order."""
        found: set[str] = set()
        open_nodes = list(outputs)
        while open_nodes:
            name = open_nodes.pop()
            if name in found or name not in self.nodes:
                continue
            found.add(name)
            open_nodes += [name for name in self.nodes[name].inputs if name not in known]
        return [node for name, node in self.nodes.items() if name in found]


def parse_graph(text: str, files: UserFiles) -> Graph:
    """The graph of a printed `GraphModule`; its subgraphs are left out. What cannot be read is left out too."""
    graph = Graph()
    line: Line | None = None
    known: set[str] = set()
    for row in text.splitlines():
        if row.lstrip().startswith("class ") and graph.outputs:
            break
        if row.lstrip().startswith("#"):
            # further comments (of annotations, of namespaces) come between a place and its nodes
            if place := _PLACE.match(row):
                shown = files.name(place[1])
                line = (shown, int(place[2]), _function(place[3])) if shown is not None else None
            elif "No stacktrace found" in row:
                line = None
            continue
        if row.lstrip().startswith("def forward("):
            graph.inputs = tuple(_TYPED.findall(row))
            known.update(graph.inputs)
        elif row.lstrip().startswith("return "):
            items = re.sub(r"^\s*return \(?|\)?\s*$", "", row).split(",")
            names = [item.strip() for item in items if item.strip()]
            graph.outputs = tuple(name if name in known else None for name in names)
        elif node := _NODE.match(row):
            name, target, rest = node.groups()
            arguments = rest.partition(";  ")[0]
            inputs = [found for found in _NAME.findall(arguments) if found in known]
            if rest.startswith("["):
                op, inputs = "getitem", [target] if target in known else []
            else:
                op = _op(target)
            graph.nodes[name] = Node(name, op, tuple(inputs), line)
            known.add(name)
    return graph


def _function(name: str) -> str | None:
    return name if name.isidentifier() else None


def _op(target: str) -> str:
    """`aten.mul` for `torch.ops.aten.mul.Tensor`; other calls as they are."""
    parts = target.split(".")
    return ".".join(parts[2:4]) if parts[:2] == ["torch", "ops"] and len(parts) >= 4 else target
