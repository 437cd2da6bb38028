"""Which line of the head is which line of the base: by statement, not by number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from gpudoctor.compare.model import LineChange
from gpudoctor.diagnosis import CountAt

ALIKE = 0.6
"""Ratio of equal characters (difflib) from which two statements are one that was edited: a renamed variable leaves 70
to 95 %, unrelated statements of one function share 20 to 50 %."""

_Key = Callable[[CountAt], tuple[object, ...] | None]
_Pair = tuple[CountAt | None, CountAt | None]


def changes(base: Sequence[CountAt], head: Sequence[CountAt]) -> tuple[LineChange, ...]:
    """Lines whose amount differs, largest increases first, losses last.

    Args:
        base: what each line of the base adds.
        head: what each line of the head adds.
    """
    made = [_change(*pair) for pair in pairs(base, head)]
    differing = [change for change in made if change.base != change.head]
    return tuple(sorted(differing, key=lambda change: (change.base - change.head, change.file, change.line)))


def pairs(base: Sequence[CountAt], head: Sequence[CountAt]) -> list[_Pair]:
    """Every line of either revision with its counterpart; None where it has none.

    A line is first looked for with its statement in its function, then anywhere in its file (a renamed or moved
    function), then in any file (a renamed file), then as an edited statement that is alike, and last as one in its file
    that adds as much.
    """
    left, right = sorted(base, key=_order), sorted(head, key=_order)
    found: list[_Pair] = []
    keys: tuple[_Key, ...] = (
        lambda at: (at.file, at.function, at.text) if at.text else None,
        lambda at: (at.file, at.text) if at.text else None,
        lambda at: (at.text,) if at.text else None,
        lambda at: None if at.text else (at.file, at.function, at.line),
    )
    for key in keys:
        left, right = _match(left, right, key, found)
    for near in (_same_function, _same_file):
        left, right = _alike(left, right, near, found)
    left, right = _match(left, right, lambda at: (at.file, at.count), found)
    return found + [(one, None) for one in left] + [(None, one) for one in right]


def _match(
    left: list[CountAt], right: list[CountAt], key: _Key, found: list[_Pair]
) -> tuple[list[CountAt], list[CountAt]]:
    """Pairs lines of equal keys in their order; returns what is left of both."""
    waiting: dict[tuple[object, ...], list[CountAt]] = defaultdict(list)
    for at in left:
        if (of := key(at)) is not None:
            waiting[of].append(at)
    rest: list[CountAt] = []
    taken: set[int] = set()
    for at in right:
        of = key(at)
        if of is not None and waiting[of]:
            other = waiting[of].pop(0)
            taken.add(id(other))
            found.append((other, at))
        else:
            rest.append(at)
    return [at for at in left if id(at) not in taken], rest


def _alike(
    left: list[CountAt], right: list[CountAt], near: Callable[[CountAt, CountAt], bool], found: list[_Pair]
) -> tuple[list[CountAt], list[CountAt]]:
    """Pairs statements that are alike, the most alike first; returns what is left of both."""
    scored = sorted(
        (
            (-score, i, j)
            for i, one in enumerate(left)
            for j, other in enumerate(right)
            if near(one, other) and (score := _likeness(one.text, other.text)) >= ALIKE
        ),
    )
    gone: tuple[set[int], set[int]] = (set(), set())
    for _, i, j in scored:
        if i not in gone[0] and j not in gone[1]:
            gone[0].add(i)
            gone[1].add(j)
            found.append((left[i], right[j]))
    return (
        [at for i, at in enumerate(left) if i not in gone[0]],
        [at for j, at in enumerate(right) if j not in gone[1]],
    )


def _likeness(one: str, other: str) -> float:
    if not one or not other:
        return 0.0
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.ratio() if matcher.real_quick_ratio() >= ALIKE and matcher.quick_ratio() >= ALIKE else 0.0


def _same_function(one: CountAt, other: CountAt) -> bool:
    return one.file == other.file and one.function == other.function


def _same_file(one: CountAt, other: CountAt) -> bool:
    return one.file == other.file


def _order(at: CountAt) -> tuple[str, int]:
    return at.file, at.line


def _change(base: CountAt | None, head: CountAt | None) -> LineChange:
    at = head or base
    assert at is not None
    edited = base is None or head is None or base.text != head.text
    return LineChange(
        at.file, at.line, base.count if base else 0, head.count if head else 0, at.function, at.text, edited
    )
