"""Watches DataLoaders: where they were made and iterated, how long the loop waited, what a batch cost to make."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, get_worker_info

from gpudoctor.recorder import torch_private
from gpudoctor.recorder.cpu_time import wanted_ns
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.recorder.worker_times import WorkerTimes
from gpudoctor.userfiles import UserFiles

_SITE = "_gpudoctor_site"
_STATE = "_gpudoctor_state"
_AT_ONCE_NS = 1_000_000  # a loop asks for its first batch within this time of making the iterator


class InputPipeline:
    """Patches DataLoader and its iterators; every patch returns at once in other processes and after the run.

    Args:
        patches: takes the patches.
        watch: where batches, epochs and loaders are written.
        files: names the user's files.
        live: whether events count now (this process, not finished).
        before: called when the loop asks for a batch; what it returns is called when the batch is there.
        progress: number of steps so far.
        epoch_ended: called when a loader is exhausted, with the number of steps at its begin.
    """

    def __init__(
        self,
        patches: Patches,
        watch: Watch,
        files: UserFiles,
        live: Callable[[], bool],
        before: Callable[[], Callable[[], None] | None],
        progress: Callable[[], int],
        epoch_ended: Callable[[int], None],
    ) -> None:
        self._patches, self._watch, self._files, self._live = patches, watch, files, live
        self._before, self._progress, self._epoch_ended = before, progress, epoch_ended
        self._loaders: list[Any] = []
        self._parts = threading.local()
        self._workers = WorkerTimes()

    def install(self) -> bool:
        """Applies the patches. False when this torch keeps its loader elsewhere."""
        iterator = torch_private.loader_iterator
        if iterator is None:
            return False
        self._patch_constructor()
        self._patch_iterator(iterator)
        self._patch_making()
        for fetcher in torch_private.fetchers:
            self._patch_fetcher(fetcher)
        return True

    def _patch_constructor(self) -> None:
        original = DataLoader.__init__
        pipeline = self

        @functools.wraps(original)
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(loader, *args, **kwargs)
            if pipeline._live():
                object.__setattr__(loader, _SITE, pipeline._files.site(_outside_of(loader, sys._getframe(1))))

        self._patches.set(DataLoader, "__init__", __init__)

    def _patch_iterator(self, iterator: Any) -> None:
        begin, following = iterator.__init__, iterator.__next__
        pipeline = self

        @functools.wraps(begin)
        def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            live = pipeline._live()
            number, new = pipeline._number(loader) if live else (0, False)
            started = pipeline._watch.now()
            begin(self, loader, *args, **kwargs)
            if live:
                if new:
                    pipeline._watch.add("L", pipeline._describe(loader, number, sys._getframe(1)))
                self.__dict__[_STATE] = pipeline._enter(number, started)

        @functools.wraps(following)
        def __next__(self: Any) -> Any:  # noqa: N807
            if not pipeline._live() or _STATE not in self.__dict__:
                return following(self)
            return pipeline._next(self, following)

        self._patches.set(iterator, "__init__", __init__)
        self._patches.set(iterator, "__next__", __next__)

    def _number(self, loader: Any) -> tuple[int, bool]:
        """The loader's number, and whether it is a new one. Its workers, if any, are about to start."""
        number = next((i for i, (known, _) in enumerate(self._loaders) if known is loader), None)
        new = number is None
        if number is None:
            number = len(self._loaders)
            self._loaders.append((loader, [0]))
        self._workers.start(number, getattr(loader, "num_workers", 0))
        return number, new

    def _enter(self, number: int, started: int) -> dict[str, int]:
        """One pass over a loader begins: what to remember of it."""
        state = {"loader": number, "started": started}
        self._new_epoch(state)
        return state

    def _patch_making(self) -> None:
        """Notes when an iterator is made, workers started and all: its base class, which is patched, starts none."""
        original = getattr(DataLoader, "_get_iterator", None)
        if original is None:
            return
        pipeline = self

        @functools.wraps(original)
        def _get_iterator(loader: Any) -> Any:
            iterator = original(loader)
            state = getattr(iterator, "__dict__", {}).get(_STATE)
            if state is not None and pipeline._live():
                state["made"] = pipeline._watch.now()
                pipeline._watch.add("I", state["started"], state["made"], state["loader"], state["epoch"])
            return iterator

        self._patches.set(DataLoader, "_get_iterator", _get_iterator)

    def _new_epoch(self, state: dict[str, int]) -> None:
        epochs = self._loaders[state["loader"]][1]
        state |= {"epoch": epochs[0], "position": 0, "steps": self._progress(), "ended": 0}
        epochs[0] += 1

    def _describe(self, loader: Any, number: int, frame: Any) -> dict[str, Any]:
        site, loop = getattr(loader, _SITE, {}), self._files.site(frame)
        dataset = getattr(loader, "dataset", None)
        getter = getattr(type(dataset), "__getitem__", None) or getattr(type(dataset), "__iter__", None)
        code = getattr(getter, "__code__", None)
        name = self._files.name(code.co_filename) if code is not None else None
        collate = getattr(getattr(loader, "collate_fn", None), "__code__", None)
        collate_file = self._files.name(collate.co_filename) if collate is not None else None
        return {
            "loader": number,
            "file": site.get("file"),
            "line": site.get("line"),
            "function": site.get("function"),
            "for_file": loop.get("file"),
            "for_line": loop.get("line"),
            "batch_size": getattr(loader, "batch_size", None),
            "num_workers": getattr(loader, "num_workers", None),
            "pin_memory": getattr(loader, "pin_memory", None),
            "persistent_workers": getattr(loader, "persistent_workers", None),
            "drop_last": getattr(loader, "drop_last", None),
            "prefetch_factor": getattr(loader, "prefetch_factor", None),
            "dataset": type(dataset).__qualname__,
            "dataset_file": name,
            "dataset_line": code.co_firstlineno if code is not None and name else None,
            "collate_file": collate_file,
            "collate_line": collate.co_firstlineno if collate is not None and collate_file else None,
            "samples": _length(dataset),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        }

    def _next(self, iterator: Any, following: Callable[[Any], Any]) -> Any:
        state = iterator.__dict__[_STATE]
        if state["ended"]:  # persistent workers keep one iterator for all epochs
            self._new_epoch(state)
        after = self._before() or _nothing  # None from a hook that failed and disarmed itself
        self._parts.fetch = self._parts.collate = self._parts.cpu = None
        started = self._watch.now()
        begun = state.pop("started", None)
        # the first wait of an epoch starts with the iterator: starting workers is part of it
        if begun is not None and started - state.get("made", started) < _AT_ONCE_NS:
            started = begun
        try:
            batch = following(iterator)
        except StopIteration:
            self._watch.add("E", started, self._watch.now(), state["loader"], state["epoch"])
            state["ended"] = 1
            self._epoch_ended(state["steps"])
            raise
        finally:
            after()
        parts = self._parts
        self._watch.add(
            "D",
            started,
            self._watch.now(),
            state["loader"],
            state["epoch"],
            state["position"],
            batch_size(batch),
            parts.fetch,
            parts.collate,
            threading.get_ident(),
            parts.cpu,
        )
        state["position"] += 1
        return batch

    def note_workers(self) -> None:
        """Writes what the workers of each loader took for their batches."""
        now = self._watch.now()
        for number in range(len(self._loaders)):
            batches, wall, cpu = self._workers.sums(number)
            if batches:
                self._watch.add("W", now, now, number, batches, wall, cpu)

    def _patch_fetcher(self, fetcher: Any) -> None:
        original = fetcher.fetch
        pipeline = self

        @functools.wraps(original)
        def fetch(self: Any, index: Any) -> Any:
            worker = get_worker_info()
            if worker is not None:
                return pipeline._workers.timed(worker.id, lambda: original(self, index))
            if not pipeline._live() or not hasattr(pipeline._parts, "fetch"):
                return original(self, index)
            collate, spent = self.collate_fn, [0]

            def timed(samples: Any) -> Any:
                begun = time.perf_counter_ns()
                try:
                    return collate(samples)
                finally:
                    spent[0] = time.perf_counter_ns() - begun

            self.collate_fn = timed
            begun, wanted = time.perf_counter_ns(), wanted_ns()
            try:
                return original(self, index)
            finally:
                self.collate_fn = collate
                pipeline._parts.cpu = wanted_ns() - wanted
                pipeline._parts.collate = spent[0]
                pipeline._parts.fetch = time.perf_counter_ns() - begun - spent[0]

        self._patches.set(fetcher, "fetch", fetch)


def _nothing() -> None:
    return None


def _outside_of(loader: Any, frame: Any) -> Any:
    """The frame that constructs the loader: constructors of its own subclasses only pass the call on."""
    while frame is not None and frame.f_code.co_name == "__init__":
        own = next(iter(frame.f_locals.values()), None)  # a constructor's first argument
        if own is not loader:
            break
        frame = frame.f_back
    return frame


def batch_size(batch: Any, depth: int = 0) -> int | None:
    """First dimension of the first tensor-like value in a batch (nested tuples, lists, mappings); else None."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth > 4:
        return None
    values: Any = batch.values() if hasattr(batch, "values") and callable(batch.values) else batch
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        return None
    if not isinstance(values, (list, tuple)) and values is batch:
        values = vars(batch).values() if hasattr(batch, "__dict__") else ()
    for value in values:
        size = batch_size(value, depth + 1)
        if size is not None:
            return size
    return None


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # a dataset without a length raises what it likes
        return None
