"""The budget bar: how the owners of step time are named, explained, placed, and told apart with and without colour."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpudoctor.diagnosis import Budget
from gpudoctor.reporters.wording import budget_percentages, budget_source, one_line
from gpudoctor.units import format_ns


@dataclass(frozen=True, slots=True)
class Owner:
    """One owner: its colour (a number of the style sheet's palette), and whether its time is work or waiting."""

    label: str
    meaning: str
    colour: int
    work: bool = True


COLOURS = 8
"""Colours in the style sheet's palette, `--c1` to `--c8`."""

_OWNERS = {
    "matmul": Owner("matmul", "matrix products and convolutions", 1),
    "operators": Owner("operators", "all other tensor operators", 2),
    "optimizer": Owner("optimizer", "the optimizer's step", 3),
    "compute": Owner("compute", "kernels on the device", 1),
    "framework": Owner("framework", "torch between operators", 4, False),
    "input": Owner("input", "waiting for the next batch", 5, False),
    "compile": Owner("compile", "torch.compile compiling", 6, False),
    "python": Owner("python", "Python code outside torch", 7, False),
    "unknown": Owner("unknown", "no instrument saw what ran", 8, False),
    "communication": Owner("exposed communication", "collectives that no kernel hides", 2, False),
    "copies": Owner("exposed copies", "copies that no kernel hides", 3, False),
    "sync": Owner("sync", "the host waits for the device", 6, False),
    "launch": Owner("launch", "the device waits for the next launch", 4, False),
    "memory": Owner("memory", "calls into the GPU's allocator", 5, False),
    "queued": Owner("queued", "launched, and not begun by the device", 7, False),
    "idle": Owner("idle", "the device has nothing to do", 8, False),
}


def describe(names: tuple[str, ...]) -> tuple[Owner, ...]:
    """The owners of one budget, no two in one colour while the palette lasts; unknown names keep their name."""
    known = [_OWNERS.get(name) for name in names]
    free = [c for c in range(1, COLOURS + 1) if c not in {owner.colour for owner in known if owner}]
    used: set[int] = set()
    described = []
    for name, match in zip(names, known, strict=True):
        owner = match or Owner(one_line(name), "", 0)
        if not match or owner.colour in used:
            owner = replace(owner, colour=free.pop(0) if free else COLOURS)
        used.add(owner.colour)
        described.append(owner)
    return tuple(described)


@dataclass(frozen=True, slots=True)
class Segment:
    """One owner in the budget bar and in its legend."""

    x: str
    width: str
    colour: int
    work: bool
    label: str
    meaning: str
    amount: str
    percent: str


@dataclass(frozen=True, slots=True)
class BudgetBar:
    """The step budget: segments in order, their shares as shown add up to 100.0 %."""

    source: str
    segments: tuple[Segment, ...]


def budget_bar(budget: Budget) -> BudgetBar:
    """The segments of the budget bar, left to right in the order of the shares."""
    total = sum(share.ns for share in budget.shares) or 1
    described = describe(tuple(share.owner for share in budget.shares))
    percentages = budget_percentages(budget)
    left = 0
    segments = []
    for share, owner, percent in zip(budget.shares, described, percentages, strict=True):
        x, width = _percent(left / total), _percent(share.ns / total)
        amount = format_ns(share.ns)
        segments.append(Segment(x, width, owner.colour, owner.work, owner.label, owner.meaning, amount, percent))
        left += share.ns
    source = budget_source(budget)
    return BudgetBar(source[0].upper() + source[1:], tuple(segments))


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
