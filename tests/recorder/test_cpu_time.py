from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpudoctor.recorder.cpu_time import main_thread_ns, wanted_ns


def work_ns(cpu_ns: int) -> tuple[int, int, int]:
    """Wall, CPU and wanted time of computing for that long."""
    wall, wanted, cpu = time.perf_counter_ns(), wanted_ns(), time.thread_time_ns()
    while time.thread_time_ns() - cpu < cpu_ns:
        pass
    return time.perf_counter_ns() - wall, time.thread_time_ns() - cpu, wanted_ns() - wanted


def test_a_thread_that_shares_its_core_wanted_it_all_the_time() -> None:
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this system does not tell how long a thread waited for a CPU")
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    other = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        os.sched_setaffinity(0, [core])
        wall, cpu, wanted = work_ns(100_000_000)
    finally:
        os.sched_setaffinity(0, allowed)
        other.kill()
        other.communicate()
    assert wanted - cpu > (wall - cpu) / 2


def test_the_main_threads_reading_is_the_same_from_any_thread() -> None:
    before = main_thread_ns()
    if before is None:
        pytest.skip("this system does not tell how long a thread waited for a CPU")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work_ns, 50_000_000).result()
        after = pool.submit(main_thread_ns).result()
    assert after is not None
    assert after[0] - before[0] < 25_000_000
    work_ns(50_000_000)
    now = main_thread_ns()
    assert now is not None
    assert now[0] - after[0] > 25_000_000


def test_a_thread_that_waits_for_something_else_did_not_want_a_core() -> None:
    read, write = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=write)
    os.close(write)
    wall, wanted = time.perf_counter_ns(), wanted_ns()
    os.read(read, 1)  # until the child has ended
    wall, wanted = time.perf_counter_ns() - wall, wanted_ns() - wanted
    os.close(read)
    child.wait()
    assert wanted < 0.9 * wall
