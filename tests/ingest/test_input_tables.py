from __future__ import annotations

from typing import Any

from gpudoctor.ingest.input_tables import numbered, one_a_place, passes, with_worker_times
from gpudoctor.ingest.watch import EpochEnd, Iterator, WatchLog


def test_a_loader_that_is_built_again_is_the_same_loader() -> None:
    made = {"file": "t.py", "line": 5, "batch_size": 8}
    loaders = [made | {"loader": 0}, made | {"loader": 1}, made | {"loader": 2, "batch_size": 9}]
    batches = [{"loader": number} for number in (0, 1, 2, 1)]
    assert [loader["loader"] for loader in one_a_place(loaders, batches)] == [0, 2]
    assert [batch["loader"] for batch in batches] == [0, 0, 2, 0]


def test_loaders_whose_place_is_not_known_stay_apart() -> None:
    loaders = [{"file": None, "loader": 0}, {"file": None, "loader": 1}]
    assert len(one_a_place(loaders, [])) == 2


def test_a_loader_knows_how_often_it_was_built_and_what_its_workers_took() -> None:
    made = {"file": "t.py", "line": 5}
    times = [
        {"loader": 0, "worker_batches": 2, "wall_ns": 30, "cpu_ns": 10},
        {"loader": 1, "worker_batches": 1, "wall_ns": 30, "cpu_ns": 5},
    ]
    (loader,) = with_worker_times(one_a_place([made | {"loader": 0}, made | {"loader": 1}], times), times)
    assert (loader["made"], loader["worker_batches"]) == (2, 3)
    assert (loader["worker_batch_ns"], loader["worker_cpu_ns"]) == (20, 5)


def test_passes_have_the_time_to_start_workers_and_to_end_them() -> None:
    log = WatchLog()
    log.iterators.append(Iterator(100, 130, 0, 0))
    log.epoch_ends.append(EpochEnd(300, 340, 0, 0))
    taken = [(0, 0, 100, 50), (0, 0, 200, 10), (0, 1, 400, 7)]
    batches: list[dict[str, Any]] = [
        {"loader": loader, "epoch": epoch, "start_ns": start, "wait_ns": wait, "step": None, "validation": False}
        for loader, epoch, start, wait in taken
    ]
    steps = [{"start_ns": start, "dur_ns": 50} for start in (150, 210, 420)]
    first, second = numbered(passes(log, batches), steps)
    assert (first["pass"], first["begin_ns"], first["first_wait_ns"], first["end_wait_ns"]) == (0, 30, 50, 40)
    assert (first["batches"], first["steps"]) == (2, 2)
    assert (second["pass"], second["begin_ns"], second["steps"]) == (1, None, None)


def test_an_iterator_that_was_made_ahead_costs_its_making_only() -> None:
    log = WatchLog()
    log.iterators.append(Iterator(100, 130, 0, 0))
    batch = {"loader": 0, "epoch": 0, "start_ns": 900, "wait_ns": 5, "step": 0, "validation": False}
    (only,) = passes(log, [batch])
    assert (only["start_ns"], only["first_wait_ns"]) == (100, 35)
