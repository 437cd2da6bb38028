from __future__ import annotations

import multiprocessing

from gpudoctor.recorder.worker_times import LOADERS, WORKERS, WorkerTimes


def make(times: WorkerTimes, worker: int, batches: int) -> None:
    assert [times.timed(worker, lambda: "batch") for _ in range(batches)] == ["batch"] * batches


def test_forked_workers_add_to_the_sums_of_their_loader_and_leave_out_their_first_batch() -> None:
    times = WorkerTimes()
    context = multiprocessing.get_context("fork")
    for loader, batches in ((0, 4), (1, 2)):
        times.start(loader, 2)
        workers = [context.Process(target=make, args=(times, worker, batches)) for worker in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert [times.sums(loader)[0] for loader in (0, 1, 2)] == [6, 2, 0]
    assert times.sums(0)[1] > 0


def test_without_workers_or_beyond_the_table_nothing_is_measured() -> None:
    times = WorkerTimes()
    times.start(0, 0)
    make(times, 0, 2)
    times.start(LOADERS, 2)
    make(times, 0, 2)
    times.start(0, WORKERS + 1)
    make(times, WORKERS, 2)
    assert [times.sums(0), times.sums(LOADERS)] == [(0, 0, 0)] * 2
