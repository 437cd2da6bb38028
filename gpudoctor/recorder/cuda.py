"""What is done for a run on a GPU only: CUPTI warmed up, the allocator's history, its statistics after each step.

Nothing here makes CUDA start: without a context that the script made, all of it is *not measured*. Each function says
why when it did nothing; none raises, as the script must not notice.
"""

from __future__ import annotations

import functools
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.patches import Patches

MAX_ENTRIES = 100_000  # a few steps of a large model; an entry with its Python stack takes some KB in the file
NO_CONTEXT = "the process uses no CUDA"
SCRIPTS_OWN = "the script records the allocator's history itself"
_STATISTICS = (
    ("allocated_bytes", "all", "current"),
    ("allocated_bytes", "all", "peak"),
    ("reserved_bytes", "all", "current"),
    ("active_bytes", "all", "current"),
    ("inactive_split_bytes", "all", "current"),
    ("num_alloc_retries",),
    ("num_device_alloc",),
    ("num_device_free",),
    ("num_ooms",),
)
"""Read after each step, in this order: a row `G` of the watch log."""


class _History:
    """Whether ours runs; and whether the script began its own, which then stays untouched."""

    ours = False
    scripts = False


def warm_up() -> str | None:
    """Starts and ends an empty profiler session with CUDA, so that the first burst has it ready.

    CUPTI takes seconds to set up and can miss the first kernels. Call it once, at a step boundary before that of the
    first burst (a session must not start where another has just stopped), with no other profiler running. It
    synchronises the device.

    Returns:
        Why it was not done, or None.
    """
    if not torch_private.cuda_initialized():
        return NO_CONTEXT
    if torch_private.profiler_running():
        return "another profiler runs"
    if ProfilerActivity.CUDA not in torch_private.profiler_activities():
        return "this torch's profiler has no CUDA activities"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
            session.start()
            session.stop()
    except Exception as error:  # a driver without CUPTI, or one that another tool holds
        return f"the CUDA profiler cannot be set up ({error})"
    return None


def watch_history(patches: Patches) -> None:
    """Notices when the script records the allocator's history: then it keeps its own, and ours ends."""
    memory = torch_private.cuda_memory
    original = getattr(memory, "_record_memory_history", None)
    if original is None:
        return

    @functools.wraps(original)
    def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> Any:
        _History.scripts, _History.ours = enabled is not None, False
        return original(enabled, *args, **kwargs)

    patches.set(memory, "_record_memory_history", _record_memory_history)


def start_history() -> str | None:
    """Begins to record allocations with their Python stacks, unless the script does so itself.

    Returns:
        Why it was not begun, or None.
    """
    if not torch_private.cuda_initialized():
        return NO_CONTEXT
    if _History.scripts or torch_private.history_enabled():
        return SCRIPTS_OWN
    record = _recorder()
    if record is None:
        return "this torch cannot record the allocator's history"
    try:
        record("all", context="all", stacks="python", max_entries=MAX_ENTRIES)
    except Exception as error:
        return f"the allocator's history cannot be recorded ({error})"
    _History.ours = True
    return None


def dump_history(path: Path) -> str | None:
    """Writes what was recorded since `start_history()` as torch's memory snapshot, and ends the recording.

    Does not synchronise: the allocator's state is the host's.

    Returns:
        Why nothing was written, or None.
    """
    if not _History.ours:
        return SCRIPTS_OWN if _History.scripts else "the allocator's history was not recorded"
    _History.ours = False
    try:
        return write_snapshot(path)
    finally:
        _end_history()


def write_snapshot(path: Path) -> str | None:
    """Writes the allocator's state, and its history where one is recorded; the history goes on.

    Returns:
        Why nothing was written, or None.
    """
    try:
        snapshot = torch_private.cuda_memory._snapshot()
        with path.open("wb") as file:
            pickle.dump(snapshot, file)
    except Exception as error:
        path.unlink(missing_ok=True)  # half of it cannot be read
        return f"the allocator's snapshot cannot be written ({error})"
    return None


def capacities() -> list[list[int]]:
    """`[device, bytes]` of the GPUs whose memory is in use."""
    try:
        devices = torch_private.devices_in_use()
        return [[device, int(torch.cuda.get_device_properties(device).total_memory)] for device, _ in devices]
    except Exception:  # a device that was lost
        return []


def _end_history() -> None:
    record = _recorder()
    if record is not None:
        try:
            record(None)
        except Exception:  # it goes on, bounded by MAX_ENTRIES
            return


def _recorder() -> Any:
    record = getattr(torch_private.cuda_memory, "_record_memory_history", None)
    return getattr(record, "__wrapped__", record)


def memory_reading() -> list[tuple[int, ...]]:
    """For each device in use `(device, …)` with the allocator's statistics in the order of `_STATISTICS`.

    Host only: nothing waits for the device. Empty when there is none, or when a statistic is missing.
    """
    if not torch_private.cuda_initialized():
        return []
    rows: list[tuple[int, ...]] = []
    try:
        for device in range(torch_private.device_count()):
            statistics = torch_private.memory_statistics(device)
            if statistics:
                rows.append((device, *(_at(statistics, keys) for keys in _STATISTICS)))
    except Exception:  # a version without them: not measured
        return []
    return [row for row in rows if any(row[1:])]


def _at(statistics: Any, keys: tuple[str, ...]) -> int:
    for key in keys:
        statistics = statistics[key]
    return int(statistics)
