"""Ties backward operators to the forward operators they differentiate.

Autograd numbers the nodes of its graph; the forward operator that made a node and the engine's range that runs it carry
the same number, the last operator of a number is the one. Some code in a backward call is forward code, though: what
checkpointing computes again, a hook, the `backward` of the user's own autograd.Function. It ran lines of its own, and
keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING
from gpudoctor.ingest.nesting import Tree
from gpudoctor.ingest.phases import AUTOGRAD_NODE, BACKWARD_CALL, ENGINE

_EVALUATE = f"{ENGINE}evaluate_function: "
_COPY_SLICES = "torch::autograd::CopySlices"

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Links:
    """For each operator, in the tree's order.

    Attributes:
        sequence: autograd's number; those inside a backward operator have its.
        forward: position of the forward operator, -1 for none.
        place: position of the operator whose line it has: its own, but for what the engine runs without Python.
    """

    sequence: Ints
    forward: Codes
    place: Codes


class _Latest:
    """Finds the last of some operators with a key, before a given one in time."""

    def __init__(self, rows: Ints, keys: Ints, rank: Ints) -> None:
        order = np.lexsort((rank[rows], keys[rows]))
        self._rows, self._keys, self._rank = rows[order], keys[rows][order], rank[rows][order]

    def find(self, keys: Ints, before: Ints | None = None) -> Codes:
        if not len(self._rows):
            return np.full(len(keys), -1, np.int32)
        # the entries of a key are in time order: the first key that is larger, or the first entry that is later
        if before is None:
            at = np.searchsorted(self._keys, keys, side="right") - 1
        else:
            span = int(max(self._rank.max(), before.max(initial=0))) + 2
            at = np.searchsorted(self._keys * span + self._rank, keys * span + before, side="left") - 1
        found = (at >= 0) & (self._keys[at] == keys)
        return np.where(found, self._rows[at], -1).astype(np.int32)


def links(
    tree: Tree, name: Codes, texts: list[str], sequence: Ints, window: Ints, backward: Mask, mark: Codes, users: Mask
) -> Links:
    """Finds the forward operator of each backward one, in the same step.

    Args:
        tree: the operators, nested.
        name: name code of each.
        texts: names by code.
        sequence: autograd's number of each; negative or `MISSING` for none.
        window: number of its step.
        backward: it ran in a backward call.
        mark: id of the last line of the user's that ran before it.
        users: the user's own code called it.
    """
    parent = tree.parent
    own = np.where(sequence >= 0, sequence, MISSING)
    has = own != MISSING
    flags = _Flags(tree, name, texts, backward)
    # nodes of one step and one number share a key; one number lower is one key lower
    span = int(own.max(initial=0)) + 2
    keys = np.where(has, window * span + own, -span)
    rank = np.empty(len(own), np.int64)
    rank[np.lexsort((-tree.end_ns, tree.start_ns))] = np.arange(len(own))
    asks = np.flatnonzero(backward & has & (flags.engine | flags.itself))
    forwards = _Latest(np.flatnonzero(has & ~backward), keys, rank)
    again = _Latest(np.flatnonzero(has & backward & ~flags.engine & ~flags.itself), keys, rank)
    found = _find(asks, keys, rank, forwards, again, flags.nested[asks])
    slices = np.flatnonzero((found < 0) & flags.copy_slices[asks])
    if len(slices):  # made right after the node of the operator that changed a view in place
        found[slices] = _find(asks[slices], keys - 1, rank, forwards, again, flags.nested[asks[slices]])
    forward = np.full(len(own), -1, np.int32)
    forward[asks] = found
    first = np.where(flags.engine | (parent < 0) | ~backward[parent], mark, -2).astype(np.int32)
    for rows in tree.levels():
        above = parent[rows]
        inherits = backward[rows]
        forward[rows] = np.where(inherits & (forward[rows] < 0) & ~flags.call[rows], forward[above], forward[rows])
        own[rows] = np.where(inherits & (own[rows] == MISSING), own[above], own[rows])
        first[rows] = np.where(first[rows] == -2, first[above], first[rows])
    takes = backward & (forward >= 0) & (mark == first) & ~users
    return Links(own, forward, _followed(np.where(takes, forward, np.arange(len(own), dtype=np.int32))))


def _find(asks: Ints, keys: Ints, rank: Ints, forwards: _Latest, again: _Latest, nested: Mask) -> Codes:
    before = forwards.find(keys[asks])
    within = again.find(keys[asks], rank[asks])
    # inside a backward call inside a backward call, what the outer one computed comes first
    first, second = np.where(nested, within, before), np.where(nested, before, within)
    return np.where(first >= 0, first, second).astype(np.int32)


def _followed(place: Codes) -> Codes:
    """The end of each chain: an operator whose line is another's whose line is a third's."""
    while True:
        further = place[place]
        if (further == place).all():
            return place
        place = further


class _Flags:
    """What an operator's name and that of its caller say."""

    def __init__(self, tree: Tree, name: Codes, texts: list[str], backward: Mask) -> None:
        codes = np.unique(name).tolist()
        parent = tree.parent
        self.call = np.isin(name, [code for code in codes if texts[code] == BACKWARD_CALL])
        self.engine = self.call | np.isin(name, [code for code in codes if texts[code].startswith(ENGINE)])
        self.copy_slices = np.isin(name, [code for code in codes if texts[code].endswith(_COPY_SLICES)])
        node = {texts[code]: code for code in codes}
        runs = np.full(max(codes, default=0) + 1, -1, np.int64)  # the node that each engine range evaluates
        for code in codes:
            if texts[code].startswith(_EVALUATE):
                runs[code] = node.get(texts[code].removeprefix(_EVALUATE), -1)
        self.itself = (parent >= 0) & (runs[name[parent]] == name) if len(name) else np.zeros(0, bool)
        # before torch 1.11 the engine had no ranges of its own
        self.itself |= (parent < 0) & np.isin(name, [code for code in codes if AUTOGRAD_NODE.match(texts[code])])
        outer = self.call & (parent >= 0) & backward[parent] & backward
        self.nested = tree.inherit(np.where(outer, 1, -1).astype(np.int32)) > 0
