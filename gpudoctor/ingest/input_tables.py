"""DataLoaders that one line makes again and again are one loader, for all that is said of them."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def one_a_place(loaders: list[Row], batches: list[Row]) -> list[Row]:
    """The loaders without those that only repeat an earlier one: same place, same arguments, same dataset.

    A loop that builds its loader in each epoch would have too few batches of each to judge.

    Args:
        loaders: rows of `loaders`.
        batches: rows of `batches`; they are counted to the loader that stays.
    """
    first: dict[tuple[tuple[str, str], ...], int] = {}
    stays: dict[Any, int] = {}
    kept = []
    for loader in loaders:
        key = tuple(sorted((name, repr(value)) for name, value in loader.items() if name != "loader"))
        if loader.get("file") is None or key not in first:
            first.setdefault(key, loader["loader"])
            kept.append(loader)
            stays[loader["loader"]] = loader["loader"]
        else:
            stays[loader["loader"]] = first[key]
    for batch in batches:
        batch["loader"] = stays.get(batch["loader"], batch["loader"])
    return kept
