"""A snapshot worth showing: a training step that runs out of memory with much of it free in pieces.

The model of the allocator places every allocation, so that addresses and segments are those that torch would have.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudoctor.analysis.allocator.model import Allocator, Block, OutOfMemoryError
from tests.memory.snapshots import MIB, Frame, Recorder, block, frame, segment, snapshot, write

TORCH = "/venv/lib/python3.11/site-packages/torch"
MAIN = frame("/home/me/train.py", 61, "train")
BACKWARD = [frame(f"{TORCH}/_tensor.py", 631, "backward"), frame("/home/me/train.py", 66, "train")]
STEP = [frame(f"{TORCH}/optim/adamw.py", 130, "_init_group"), frame("/home/me/train.py", 67, "train")]
CACHE = [frame("/home/me/cache.py", 18, "keep"), frame("/home/me/train.py", 70, "train")]
SCORES = [frame("/home/me/attention.py", 52, "scores"), MAIN]
MLP = [frame("/home/me/model.py", 31, "forward"), MAIN]
LAYERS = 24
CAPACITY = 6 << 30


class Device:
    """An allocator whose every allocation is written down."""

    def __init__(self, capacity: int) -> None:
        self.allocator, self.recorder = Allocator(capacity=capacity), Recorder()
        self.live: list[tuple[Block, list[Frame]]] = []

    def alloc(self, size: int, stack: list[Frame], recorded: bool = True) -> Block:
        """Memory is given out; what comes before the recording leaves no entry."""
        made = self.allocator.allocate(size)
        self.live.append((made, stack if recorded else []))
        if recorded:
            self.recorder.alloc(made.address, size, stack)
        return made

    def free(self, given: Block) -> None:
        """Memory comes back."""
        at = next(place for place, (each, _) in enumerate(self.live) if each is given)
        _, stack = self.live.pop(at)
        self.recorder.free(given.address, given.size, stack)
        self.allocator.free(given)

    def segments(self) -> list[dict[str, Any]]:
        """The segments as a snapshot has them."""
        stacks = {each.address: stack for each, stack in self.live}
        firsts = {_first(each).address: _first(each) for each in (*(one for one, _ in self.live), *self.free_blocks())}
        return [_segment(firsts[address], stacks) for address in sorted(firsts)]

    def free_blocks(self) -> Sequence[Block]:
        """What nobody holds."""
        return self.allocator.free_blocks()


def _first(one: Block) -> Block:
    while one.before is not None:
        one = one.before
    return one


def _segment(first: Block, stacks: dict[int, list[Frame]]) -> dict[str, Any]:
    blocks, one = [], first
    while True:
        state = "active_allocated" if one.used else "inactive"
        blocks.append(block(one.address, one.size, state, stacks.get(one.address, [])))
        if one.after is None:
            break
        one = one.after
    return segment(first.address, sum(each["size"] for each in blocks), blocks)


def full_device(path: Path) -> Path:
    """Writes the snapshot: sequences of all lengths and a cache that keeps a little of each, until a request fails."""
    device, chance = Device(CAPACITY), random.Random(11)
    for _ in range(LAYERS):
        device.alloc(28 * MIB, [], recorded=False)
    state: list[Block] = []
    request = 0
    try:
        for _ in range(200):
            saved, gradients = [], []
            length = chance.randint(20, 60)
            for _ in range(LAYERS):
                for size, stack in ((length, MLP), (length * length // 60 + 2, SCORES)):
                    request, failed = size * MIB + chance.randrange(64) * 1024, stack
                    saved.append(device.alloc(request, stack))
            for layer in reversed(range(LAYERS)):
                gradients.append(device.alloc(28 * MIB, BACKWARD))
                device.free(saved.pop())
                if layer % 6 == 0:
                    request, failed = chance.randint(2, 9) * MIB, CACHE
                    device.alloc(request, CACHE)
                device.free(saved.pop())
            state = state or [device.alloc(28 * MIB, STEP) for _ in range(2 * LAYERS)]
            for each in gradients:
                device.free(each)
    except OutOfMemoryError:
        free = CAPACITY - device.allocator.reserved
        device.recorder.add("oom", 0, request, failed, device_free=free)
    settings = {"expandable_segments": False, "max_split_size": -1, "garbage_collection_threshold": 0.0}
    return write(path, snapshot(device.segments(), device.recorder.entries, **settings))
