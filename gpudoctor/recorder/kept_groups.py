"""What one holder keeps of each step, and whether that is growth: the arithmetic behind `growth`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.recorder.graph_walk import Memory
from gpudoctor.recorder.holders import Holder

MIN_STEPS = 4  # of which something is left: fewer may be chance, or something that is made once
LEAST_SHARE = 0.5
"""What one half of the steps leaves, of what the other does: after a cache that fills up or lazy state the later half
leaves less, with a window that moves on or a list that was emptied the earlier one."""

MIN_LENGTHS = 2  # times that a tensor of one name was longer than the time before

NODE_BYTES = 800
"""Host memory of a node that has saved nothing, or what it saved was freed.

Measured as growth of the process: 607 to 820 bytes a node of a network of linear layers and ReLU, torch 2.13.
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """What one holder has kept.

    Attributes:
        holder: what holds it; None when no name was found.
        from_step: first step that was looked at.
        to_step: the last one.
        made_in: steps of which something is left.
        tensors: tensors with memory of their own.
        tensor_bytes: that memory.
        used_bytes: what the tensors show of it.
        nodes: nodes of autograd graphs.
        saved_bytes: memory that only these nodes keep: saved tensors.
        late_bytes: what is left of the later half of the steps, `NODE_BYTES` for each node included.
        gpu: most of the memory is a GPU's.
    """

    holder: Holder | None
    from_step: int
    to_step: int
    made_in: int
    tensors: int
    tensor_bytes: int
    used_bytes: int
    nodes: int
    saved_bytes: int
    late_bytes: int
    gpu: bool

    def row(self) -> dict[str, Any]:
        """As it is saved."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "holder"}
        plain["node_bytes"] = NODE_BYTES * self.nodes
        held = self.holder
        return plain | {name: getattr(held, name) for name in Holder.__slots__} if held is not None else plain


@dataclass(slots=True)
class Group:
    """Tensors and nodes of one holder, added as they are found.

    Attributes:
        since: no step before this one was looked at to the end.
    """

    since: int = 0
    _tensors: list[tuple[int, Memory]] = field(default_factory=list)
    _nodes: dict[int, int] = field(default_factory=dict)
    _saved: dict[int, int] = field(default_factory=dict)
    _gpu_bytes: int = 0
    _bytes: int = 0

    def add_tensor(self, first: int, memory: Memory) -> None:
        """A tensor with memory of its own, first seen in count number `first`."""
        self._tensors.append((first, memory))
        self._sum(memory)

    def add_node(self, step: int) -> None:
        """A node that was made in a step."""
        self._nodes[step] = self._nodes.get(step, 0) + 1

    def add_saved(self, step: int, memory: Memory) -> None:
        """Memory that a node of a step saves."""
        self._saved[step] = self._saved.get(step, 0) + memory.size_bytes
        self._sum(memory)

    def _sum(self, memory: Memory) -> None:
        self._bytes += memory.size_bytes
        self._gpu_bytes += memory.size_bytes * memory.gpu

    def growth(self, holder: Holder | None, counted: Sequence[int], latest: int) -> Growth | None:
        """What has been kept, when it grows; None otherwise.

        Args:
            holder: what holds it.
            counted: steps behind which tensors were counted.
            latest: last step whose tensors and nodes are old enough.
        """
        # when a tensor was made is known by the count that first saw it: those of the last count may be temporary
        last = min(latest, counted[-2]) if self._tensors else latest
        steps = range(max(counted[0] + 1, self.since), last + 1)
        if len(steps) < MIN_STEPS:
            return None
        left = dict.fromkeys(steps, 0.0)
        number, size, used = self._spread(counted, left)
        for step in steps:
            left[step] += self._saved.get(step, 0) + NODE_BYTES * self._nodes.get(step, 0)
        values = list(left.values())
        half = len(values) // 2
        made_in = sum(value > 0 for value in values)
        early, late = sum(values[:half]), sum(values[-half:])
        if made_in < MIN_STEPS or late < LEAST_SHARE * early or early < LEAST_SHARE * late:
            return None
        nodes, saved = (sum(part.get(step, 0) for step in steps) for part in (self._nodes, self._saved))
        gpu = 2 * self._gpu_bytes > self._bytes
        return Growth(
            holder,
            steps[0],
            steps[-1],
            made_in,
            round(number),
            round(size),
            round(used),
            nodes,
            saved,
            round(late),
            gpu,
        )

    def _spread(self, counted: Sequence[int], left: dict[int, float]) -> tuple[float, float, float]:
        """Adds the tensors' bytes to the steps between the two counts.

        Returns:
            how many there are, their memory, and what they show of it.
        """
        number = size = used = 0.0
        for first, memory in self._tensors:
            inside = range(counted[first - 1] + 1, counted[first] + 1)
            share = 1 / len(inside)
            for step in inside:
                if step in left:
                    left[step] += memory.size_bytes * share
                    number, size, used = (
                        number + share,
                        size + memory.size_bytes * share,
                        used + memory.used_bytes * share,
                    )
        return number, size, used


class Lengths:
    """Sizes of tensors that a name is bound to anew in each step: `seen = torch.cat([seen, x])`."""

    def __init__(self) -> None:
        self._sizes: dict[Holder, list[tuple[int, Memory]]] = {}

    def add(self, holder: Holder, step: int, memory: Memory) -> None:
        """What a name was bound to behind a step."""
        self._sizes.setdefault(holder, []).append((step, memory))

    def growing(self, step: int) -> list[Growth]:
        """Names that were bound to more each time, up to a step, about as much for each step."""
        found = []
        for holder, sizes in self._sizes.items():
            pace = [
                (there.size_bytes - here.size_bytes) / (later - sooner)
                for (sooner, here), (later, there) in itertools.pairwise(sizes)
            ]
            if len(pace) < MIN_LENGTHS or sizes[-1][0] != step or min(pace) < LEAST_SHARE * max(pace) or min(pace) <= 0:
                continue
            (first, least), (last, most) = sizes[0], sizes[-1]
            more = most.size_bytes - least.size_bytes
            late = most.size_bytes - sizes[len(sizes) // 2][1].size_bytes
            found.append(Growth(holder, first + 1, last, last - first, 0, more, more, 0, 0, late, most.gpu))
        return found
