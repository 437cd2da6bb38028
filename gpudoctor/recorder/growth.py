"""Finds what stays alive step after step: tensors, autograd graphs that tensors keep, and what holds them.

Between steps, where a profiler burst has just ended or from time to time, the live tensors are counted. A tensor is
known by a weak reference, a node of a graph by autograd's number, so that nothing is kept alive by being watched. What
is still there three steps after it was made, of each stretch of steps, is kept; what holds it is looked for only then.

A count goes through all objects that the garbage collector knows, 25 ms for 300,000 of them. So the first ones lie
where the step is disturbed anyway, and the later ones take at most a hundredth of the run.
"""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from gpudoctor.recorder import free_memory, holders, torch_private
from gpudoctor.recorder.graph_walk import GraphWalk, Kept, Memory, last_nodes, memory_of
from gpudoctor.recorder.kept_groups import Group, Growth, Lengths
from gpudoctor.userfiles import UserFiles

FILE = "growth.json"
OLD_STEPS = 3  # what lives so many steps longer than the one that made it is no leftover of the loop's variables
LATEST_START = 30  # steps behind which counting begins where no profiler burst could be taken
FREE_COUNTS = 6  # taken whatever they cost: with fewer nobody could tell growth from filling up
MAX_SHARE = 0.01  # of the run's time that later counts may take
MAX_LARGEST = 6  # tensors of the last step whose names are looked for when all together take more and more
MIN_BYTES_PER_STEP = 1024  # below this nobody asks who holds it; the rule's own threshold is higher
_RSS_EVERY_NS = 5_000_000  # a reading takes 10 µs


@dataclass(frozen=True, slots=True)
class _Known:
    """A live tensor: the count that first saw it, and its memory."""

    reference: weakref.ref[Any]
    first: int
    memory: Memory | None


class GrowthWatch:
    """Counts live tensors at the ends of some steps.

    Args:
        files: the user's files.
        add: appends a row to the watch log.
        now: the recording's clock.
    """

    def __init__(self, files: UserFiles, add: Callable[..., None], now: Callable[[], int]) -> None:
        self._files, self._add, self._now = files, add, now
        self.begin()

    def begin(self) -> None:
        """What a process starts from, a forked one too."""
        self.failed: str | None = None
        self._spent_ns, self._rss_ns = 0, -_RSS_EVERY_NS
        self.start_anew(0)

    def start_anew(self, step: int) -> None:
        """What was taken for steps was none: counting begins anew with step number `step`."""
        self._known: dict[int, _Known] = {}
        self._counted: list[int] = []
        self._found: list[tuple[int, list[Growth]]] = []
        self._totals: list[int] = []
        self._lengths = Lengths()
        self._numbers, self._first_step = array("Q"), step

    def step_ended(self, step: int, now: int) -> None:
        """Notes where autograd's numbers stand, and what memory the process has.

        Args:
            step: number of the step.
            now: when it ended.
        """
        if step != self._first_step + len(self._numbers):
            self.start_anew(step)
        self._numbers.append(torch_private.sequence_number() or 0)
        if now - self._rss_ns >= _RSS_EVERY_NS:
            self._rss_ns = now
            rss = free_memory.resident()
            if rss is not None:
                self._add("U", now, now, rss)

    def due(self, step: int, watched_ns: int, disturbed: bool) -> bool:
        """Whether the live tensors are to be counted behind a step.

        Args:
            step: number of the step that ended.
            watched_ns: how long the run was watched.
            disturbed: the next step is not timed anyway.
        """
        if self.failed is not None:
            return False
        last = self._counted[-1] if self._counted else None
        if last is None:
            return disturbed or step - self._first_step >= LATEST_START
        if step - last < OLD_STEPS:
            return False
        if len(self._counted) >= FREE_COUNTS and self._spent_ns > MAX_SHARE * watched_ns:
            return False
        return disturbed or step >= last + max(OLD_STEPS, (last - self._first_step) // 2)

    def due_at_end(self, step: int) -> bool:
        """Whether a last count behind the step at which the run is stopped would tell what still grows."""
        return self.failed is None and bool(self._counted) and step - self._counted[-1] >= OLD_STEPS

    def count(self, step: int, frame: FrameType | None) -> None:
        """Counts the live tensors, and finds what holds those that are kept.

        Args:
            step: number of the step that ended.
            frame: where to look for the variables that may hold them: its function and those that called it.
        """
        began = self._now()
        collecting = gc.isenabled()
        gc.disable()
        try:
            with torch_private.without_overrides():
                self._count(step, frame)
        except Exception as error:  # an object of the user's that does not let itself be looked at
            self.failed = repr(error)
        finally:
            if collecting:
                gc.enable()
        ended = self._now()
        self._spent_ns += ended - began
        self._add("P", began, ended, len(self._counted), "count")

    def _count(self, step: int, frame: FrameType | None) -> None:
        tensors = [t for t in gc.get_objects() if type(t) is torch.Tensor or type(t) is torch.nn.Parameter]
        self._counted.append(step)
        self._recognise(tensors)
        self._totals.append(
            sum({one.memory.address: one.memory.size_bytes for one in self._known.values() if one.memory}.values())
        )
        longer = self._longer(tensors, step, frame)
        found = longer + (self._kept(tensors, step - OLD_STEPS, frame) if len(self._counted) > 2 else [])
        self._found.append((step, found))

    def _recognise(self, tensors: Sequence[Any]) -> None:
        number, before, self._known = len(self._counted) - 1, self._known, {}
        for tensor in tensors:
            known = before.get(id(tensor))
            if known is None or known.reference() is not tensor:
                memory = None if torch_private.transformed(tensor) else memory_of(tensor)
                known = _Known(weakref.ref(tensor), number, memory)
            self._known[id(tensor)] = known

    def _longer(self, tensors: Sequence[Any], step: int, frame: FrameType | None) -> list[Growth]:
        """Tensors that are made anew in each step with more in them, where all tensors together take more and more."""
        pairs = list(zip(itertools.pairwise(self._counted), itertools.pairwise(self._totals), strict=True))[-2:]
        grown = [b - a >= MIN_BYTES_PER_STEP * (later - sooner) for (sooner, later), (a, b) in pairs]
        if len(grown) < 2 or not all(grown):
            return []
        now = len(self._counted) - 1
        fresh = [
            (known.memory.size_bytes, t) for t in tensors if (known := self._known[id(t)]).first == now and known.memory
        ]
        largest = [tensor for _, tensor in sorted(fresh, key=lambda one: -one[0])[:MAX_LARGEST]]
        held = holders.Search(frame, self._files, [tensors, fresh, *fresh]).of_all(largest)
        for tensor in largest:
            holder, memory = held.get(id(tensor)), self._known[id(tensor)].memory
            if holder is not None and holder.container is None and memory is not None:
                self._lengths.add(holder, step, memory)
        return self._lengths.growing(step)

    def _kept(self, tensors: list[Any], latest: int, frame: FrameType | None) -> list[Growth]:
        """What has been kept of the steps between the first count and step number `latest`, by holder."""
        static = {one.memory.address for one in self._known.values() if one.first == 0 and one.memory}
        kept = [t for t in tensors if 0 < self._known[id(t)].first < len(self._counted) - 1]
        roots = self._roots(tensors)
        tensors.clear()
        graphs = self._graphs(roots, {})
        whole = self._groups({}, kept, graphs, static, everything=True)[None].growth(None, self._counted, latest)
        if whole is None or 2 * whole.late_bytes < MIN_BYTES_PER_STEP * (whole.to_step - whole.from_step):
            return []
        targets = list({id(one): one for one in [*kept, *(tensor for tensor, kept in graphs if kept.old)]}.values())
        search = holders.Search(frame, self._files, [kept, roots, *roots, graphs, *graphs])
        held = search.of_all(targets)
        groups = self._groups(held, kept, self._graphs(roots, held), static)
        found = [group.growth(holder, self._counted, latest) for holder, group in groups.items()]
        return [one for one in found if one is not None]

    def _roots(self, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Tensors with their graph's last node: those that were there first, then those that lie deepest in a graph."""
        known = self._known
        return sorted(last_nodes(tensors), key=lambda root: (known[id(root[0])].first, int(root[1]._sequence_nr())))

    def _graphs(self, roots: Sequence[tuple[Any, Any]], held: dict[int, holders.Holder]) -> list[tuple[Any, Kept]]:
        """What hangs on each tensor's graph and on none before it; those with a name come first."""
        begun = self._counted[0] - self._first_step
        if begun < 0:
            return []
        walk = GraphWalk(self._numbers[begun], self._numbers[-1 - OLD_STEPS])
        order = sorted(roots, key=lambda root: id(root[0]) not in held)
        return [(tensor, walk.from_node(node)) for tensor, node in order]

    def _step_of(self, number: int) -> int:
        """The step in which autograd gave a number: that of a step's end is the first of the next one."""
        return self._first_step + bisect_right(self._numbers, number)

    def _groups(
        self,
        held: dict[int, holders.Holder],
        kept: Sequence[Any],
        graphs: Sequence[tuple[Any, Kept]],
        static: set[int],
        everything: bool = False,
    ) -> dict[holders.Holder | None, Group]:
        """What is kept, by holder; memory counts once, as a tensor's where there is one with a name.

        Args:
            held: holders by the tensor's identity.
            kept: tensors.
            graphs: tensors with what hangs on them.
            static: addresses of memory that was there before.
            everything: tensors without a holder count as well.
        """
        groups: dict[holders.Holder | None, Group] = {None: Group()} if everything else {}
        taken = set(static)
        for tensor in kept:
            known, holder = self._known[id(tensor)], held.get(id(tensor))
            if known.memory is None or known.memory.address in taken or not (holder or everything):
                continue
            taken.add(known.memory.address)
            groups.setdefault(holder, Group()).add_tensor(known.first, known.memory)
        for tensor, graph in graphs:
            group = groups.setdefault(held.get(id(tensor)), Group())
            if graph.since:
                group.since = max(group.since, self._step_of(graph.since))
            for number in graph.nodes:
                group.add_node(self._step_of(number))
            for number, memory in graph.saved:
                if memory.address not in taken:
                    taken.add(memory.address)
                    group.add_saved(self._step_of(number), memory)
        return groups

    def save(self, folder: Path) -> None:
        """Writes `growth.json`."""
        counts = [{"step": step, "found": [one.row() for one in found]} for step, found in self._found]
        content = {"failed": self.failed, "counts": counts, "free_bytes": free_memory.host()}
        if torch_private.cuda_initialized():
            content["gpu_free_bytes"] = free_memory.gpu()
        (folder / FILE).write_text(json.dumps(content), encoding="utf-8")
