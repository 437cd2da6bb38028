"""The tables of loaders and of passes over them.

DataLoaders that one line makes again and again are one loader, for all that is said of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gpudoctor.ingest.watch import WatchLog

Row = dict[str, Any]


def tables(log: WatchLog, steps: Sequence[Row], batches: list[Row]) -> dict[str, list[Row]]:
    """The tables `loaders` and `loader_passes`; loaders that are one get one number, in the log and in batches too.

    Args:
        log: the watch log; its loaders become those of the table.
        steps: rows of `steps`.
        batches: rows of `batches`, each with its loader's own number.
    """
    found = passes(log, batches)
    loaders = one_a_place(log.loaders, batches, found, log.worker_times)
    log.loaders = with_worker_times(loaders, log.worker_times)
    return {"loaders": log.loaders, "loader_passes": numbered(found, steps)}


def one_a_place(loaders: list[Row], *counted: list[Row]) -> list[Row]:
    """The loaders without those that only repeat an earlier one: same place, same arguments, same dataset.

    A loop that builds its loader in each epoch would have too few batches of each to judge.

    Args:
        loaders: rows of `loaders`.
        counted: rows with the number of a loader; they are counted to the loader that stays.
    """
    first: dict[tuple[tuple[str, str], ...], int] = {}
    stays: dict[Any, int] = {}
    kept: dict[int, Row] = {}
    for loader in loaders:
        key = tuple(sorted((name, repr(value)) for name, value in loader.items() if name != "loader"))
        number = loader["loader"]
        stays[number] = number if loader.get("file") is None else first.setdefault(key, number)
        kept.setdefault(stays[number], loader)
    for row in (row for rows in counted for row in rows):
        row["loader"] = stays.get(row["loader"], row["loader"])
    made = Counter(stays.values())
    return [loader | {"made": made[number]} for number, loader in kept.items()]


def with_worker_times(loaders: Sequence[Row], times: Sequence[Row]) -> list[Row]:
    """Rows of `loaders` with what their workers took for a batch.

    Args:
        loaders: rows of `loaders`.
        times: sums by loader: `worker_batches`, `wall_ns`, `cpu_ns`.
    """
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in times:
        sums[row["loader"]].update({name: value for name, value in row.items() if name != "loader"})
    return [loader | _mean(sums.get(loader["loader"])) for loader in loaders]


def _mean(total: Counter[str] | None) -> Row:
    if total is None or not total["worker_batches"]:
        return {}
    batches = total["worker_batches"]
    means = {"worker_batch_ns": total["wall_ns"] // batches, "worker_cpu_ns": total["cpu_ns"] // batches}
    return {"worker_batches": batches, **means}


def passes(log: WatchLog, batches: Sequence[Row]) -> list[Row]:
    """Rows of `loader_passes` without their number, in time order.

    Args:
        log: the watch log.
        batches: rows of `batches`, each with its loader's own number.
    """
    begun = {(span.loader, span.epoch): span for span in log.iterators}
    ended = {(span.loader, span.epoch): span for span in log.epoch_ends}
    of_pass: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for batch in batches:
        of_pass[batch["loader"], batch["epoch"]].append(batch)
    rows = []
    for key, taken in of_pass.items():
        first, made, end = taken[0], begun.get(key), ended.get(key)
        begin = None if made is None else made.end_ns - made.start_ns
        apart = made is not None and first["start_ns"] != made.start_ns  # the loop did something else in between
        row = {"loader": key[0], "validation": first["validation"], "begin_ns": begin, "batches": len(taken)}
        row |= {"start_ns": first["start_ns"] if made is None else made.start_ns, "step": first["step"]}
        row |= {"first_wait_ns": first["wait_ns"] + (begin or 0 if apart else 0)}
        row |= {"end_wait_ns": end and end.end_ns - end.start_ns, "end_ns": end and end.start_ns}
        rows.append(row)
    return sorted(rows, key=lambda row: row["start_ns"])


def numbered(rows: Sequence[Row], steps: Sequence[Row]) -> list[Row]:
    """Rows of `loader_passes`, once the loaders that are one have one number: numbers passes, counts their steps."""
    ends = [step["start_ns"] + step["dur_ns"] for step in steps]
    of_loader: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        of_loader[row["loader"]].append(row)
    made = []
    for own in of_loader.values():
        untils = [*(row["start_ns"] for row in own[1:]), own[-1]["end_ns"]]
        for number, (row, until) in enumerate(zip(own, untils, strict=True)):
            count = None if until is None else bisect_left(ends, until) - bisect_left(ends, row["start_ns"])
            kept = {name: value for name, value in row.items() if name != "end_ns"}
            made.append(kept | {"pass": number, "steps": count})
    return made
