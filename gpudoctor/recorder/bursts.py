"""Profiler bursts: short, planned profiles inside the run, exported as Kineto traces as soon as they end.

What was measured and is respected here: a session must not start in the optimizer hook in which another stopped
(segfault), nor start or stop inside backward; two sessions at once crash, so a profiler of the script's own goes first.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gpudoctor.recorder import complaints, cuda, memory_objects, torch_private
from gpudoctor.recorder.line_marks import LineMarks
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.place import Place
from gpudoctor.recorder.watch import Watch
from gpudoctor.recording import MEMORY_FILE

FILE = "bursts.json"
MAX_RETAKES = 5  # a script that compiles in every step never gives a clean burst: then say so, do not try for ever
LIGHT_GAP = 5  # steps between the two light bursts: light and bare steps then tell of the same stretch of the run
MAX_DETAIL_OPS = 50_000  # operators a step; 100,000 with stacks took 3.6 GB and a 455 MB file
SLOW_STEP_NS = 300_000_000  # only a step this long can hold so many operators: it is counted in a light step first


@dataclass(slots=True)
class Burst:
    """One profiler session.

    Attributes:
        label: light (no options: for times) or detail (stacks, shapes: for attribution).
        steps: how many steps it shall hold.
        after: how many steps shall pass without a profiler before it.
        file: exported trace, relative to the rank's folder.
        taken: numbers of the steps inside, in order.
        compiled: those of them in which something compiled.
        marked: user lines were marked.
    """

    label: str
    steps: int
    after: int = 0
    file: str = ""
    taken: list[int] = field(default_factory=list)
    compiled: list[int] = field(default_factory=list)
    marked: bool = False


class Bursts:
    """Takes the planned bursts, one boundary at a time."""

    def __init__(
        self, place: Place, watch: Watch, marks: LineMarks, patches: Patches, after_burst: Callable[[], None]
    ) -> None:
        self._place, self._watch, self._marks = place, watch, marks
        self._after_burst = after_burst
        self._plan = _plan()
        self._allowed = {burst.label for burst in self._plan}
        self._waited = 0
        self._running: Burst | None = None
        self._session: Any = None
        self._range: Any = None
        self._foreign: set[int] = set()
        self._retakes = 0
        self._warm = self._warming = False
        self._closed = False
        self.idle = False
        """While true the profilers that start and end are no concern of this recorder."""
        self.taken: list[Burst] = []
        self.notes: list[str] = []
        self._yield_to_foreign_sessions(patches)

    @property
    def done(self) -> bool:
        """Whether nothing is planned or running any more."""
        return not self._plan and self._running is None

    @property
    def running(self) -> bool:
        """Whether a burst is being taken."""
        return self._running is not None

    def restart(self) -> None:
        """Plans every burst again; those that were taken stay, for what they are worth."""
        self._plan = [burst for burst in _plan() if burst.label in self._allowed]
        self._waited = 0

    def shorten(self) -> None:
        """Plans one step a burst: the steps are too long for more."""
        for burst in self._plan:
            burst.steps = 1

    def start(self, step: int, step_ns: int) -> None:
        """Starts the next planned burst with step number `step`; `step_ns` is the last step's time."""
        if not self._plan or self._foreign or torch_private.profiler_running() or torch_private.dynamo_importing():
            return
        if self._waited < self._plan[0].after:
            self._waited += 1
            return
        if not self._warm and torch_private.cuda_initialized():
            self._warm_up()
            return
        if step_ns > SLOW_STEP_NS and self._plan[0].label == "detail" and not self.taken:
            self._plan.insert(0, Burst("light", 1))
        began = self._watch.now()
        burst = self._plan[0]
        options: dict[str, Any] = {"with_stack": True, "record_shapes": True, "profile_memory": True}
        if burst.label == "detail" and sys.getprofile() is not None:  # cProfile, say: ours would switch it off
            burst.label = "light"  # without stacks nobody knows who called an operator: rules that ask must not pass
            self.notes.append("a Python profiler of the script's own runs: who called an operator is not known")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detail = burst.label == "detail"
            self._session = profile(activities=_activities(), **(options if detail else {}))
            block = [torch.empty(1)]
            with complaints.held_back(memory=detail):
                self._session.start()
                block.clear()
        self._running, self._waited = self._plan.pop(0), 0
        self._watch.add("P", began, self._watch.now(), len(self.taken), "start")
        if burst.label == "detail":
            if torch_private.cuda_initialized():
                self._note_history(cuda.start_history())
            self._marks.start()
            burst.marked = self._marks.active
        self._mark(step)

    def _warm_up(self) -> None:
        """Has CUPTI set up before it counts; the burst starts at the next boundary."""
        began = self._watch.now()
        self._warm = self._warming = True
        reason = cuda.warm_up()
        self._warming = False
        if reason is not None:
            self.notes.append(f"CUPTI was not warmed up, the first kernels may be missing: {reason}")
        self._watch.add("P", began, self._watch.now(), 0, "warm-up")

    def _mark(self, step: int) -> None:
        self._close_range()
        self._watch.add("M", now := self._watch.now(), now, step, len(self.taken))
        self._range = torch.autograd.profiler.record_function(f"ProfilerStep#{step}")
        self._range.__enter__()

    def _close_range(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None

    def step_ended(self, step: int, compiled: bool) -> None:
        """Step number `step` just ended inside the running burst."""
        burst = self._running
        if burst is None:
            return
        burst.taken.append(step)
        if compiled:
            burst.compiled.append(step)
        clean = len(burst.taken) - len(burst.compiled)
        if clean >= burst.steps or (compiled and len(burst.taken) >= burst.steps):
            self.stop()
        else:
            self._mark(step + 1)

    def stop(self) -> None:
        """Ends the running burst, exports it, and plans it again when a compile spoiled it."""
        burst, session = self._running, self._session
        if burst is None:
            return
        self._marks.stop()
        began = self._watch.now()
        self._close_range()
        self._running = self._session = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session.stop()
            if burst.label == "detail" and torch_private.cuda_initialized():
                self._save_memory()
            burst.file = f"trace.{len(self.taken)}.{burst.label}.json"
            if burst.taken:
                self._export(session, self._place.folder / burst.file)
        _free(session)
        number = len(self.taken)
        if burst.taken:
            self.taken.append(burst)
            self._save()
            self._after_burst()
        self._replan(burst)
        self._watch.add("P", began, self._watch.now(), number, "stop")
        self._watch.flush()

    def _save_memory(self) -> None:
        reason = cuda.dump_history(self._place.folder / MEMORY_FILE)
        self._note_history(reason)
        if reason is None:
            memory_objects.save(self._place.folder)

    def _note_history(self, reason: str | None) -> None:
        note = f"the allocator's history was not recorded: {reason}"
        if reason is not None and note not in self.notes:
            self.notes.append(note)

    def _export(self, session: Any, path: Path) -> None:
        """Writes the trace. Kineto puts the file's name into the JSON as it is: a quote in it would break the file."""
        if str(path).isascii() and not set(str(path)) & set('"\\'):
            session.export_chrome_trace(str(path))
            return
        with tempfile.TemporaryDirectory(prefix="gpudoctor-") as folder:
            session.export_chrome_trace(str(Path(folder) / "trace.json"))
            shutil.move(Path(folder) / "trace.json", path)

    def _replan(self, burst: Burst) -> None:
        if len(burst.taken) == len(burst.compiled) and self._retakes < MAX_RETAKES:
            self._retakes += 1
            self._plan.insert(0, Burst(burst.label, burst.steps))
        if burst.label == "light" and burst.taken and self._plan and self._plan[0].label == "detail":
            ops = (self._place.folder / burst.file).read_bytes().count(b'"cpu_op"') // len(burst.taken)
            if ops > MAX_DETAIL_OPS:
                self._plan = [planned for planned in self._plan if planned.label != "detail"]
                self._allowed.discard("detail")
                self.notes.append(
                    f"a step runs {ops:,} operators: lines and shapes were not recorded (limit {MAX_DETAIL_OPS:,})"
                )

    def forget(self) -> None:
        """A forked child takes no bursts when its parent has used the profiler: its threads are gone."""
        if self.taken or self._running is not None or self._foreign:
            self._plan = []
            self._allowed.clear()
        self._running = self._session = self._range = None
        self.taken, self.notes, self._foreign, self._retakes, self._waited = [], [], set(), 0, 0

    def abandon(self) -> None:
        """Drops the running burst and plans it again: its steps were cut wrongly, or another profiler starts."""
        burst = self._running
        if burst is None:
            return
        burst.taken.clear()
        self.stop()

    def cut_short(self) -> None:
        """Ends the running burst with the steps it has; without any it is planned again, however often."""
        burst = self._running
        if burst is not None:
            self._retakes -= not burst.taken
            self.stop()

    def _save(self) -> None:
        content = [asdict(burst) for burst in self.taken]
        (self._place.folder / FILE).write_text(json.dumps(content), encoding="utf-8")

    def _yield_to_foreign_sessions(self, patches: Patches) -> None:
        """A profiler of the script's own goes first: ours is dropped when it starts, and waits until it ends."""
        session = torch.autograd.profiler.profile
        prepare: Any = getattr(session, "_prepare_trace", None)
        leave: Any = session.__exit__
        if prepare is None:
            return
        bursts = self

        def _prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
            if bursts._warming:
                return prepare(self, *args, **kwargs)
            if bursts._session is None or getattr(bursts._session, "profiler", None) not in (None, self):
                bursts._foreign_begins(self)
            return prepare(self, *args, **kwargs)

        def __exit__(self: Any, *args: Any) -> Any:  # noqa: N807
            bursts._foreign.discard(id(self))
            return leave(self, *args)

        patches.set(session, "_prepare_trace", _prepare_trace)
        patches.set(session, "__exit__", __exit__)

    def close(self) -> None:
        """Ends the running burst; sessions that begin later are nobody's concern."""
        self.stop()
        self._closed = True

    def _foreign_begins(self, session: Any) -> None:
        if self._closed or self.idle:
            return
        if not self._foreign and not any("own profiler" in note for note in self.notes):
            self.notes.append("the script's own profiler ran: gpudoctor profiled only when it did not")
        self.abandon()
        self._foreign.add(id(session))


def _free(session: Any) -> None:
    """Frees the events of a session that ended, here and now, in time that is gpudoctor's own.

    A session is in reference cycles, so the first collection in the steps behind it would free its events: 10 to 70 ms
    of a collection that looks like the script's. Counting references frees them where the last one goes.
    """
    ended = getattr(session, "profiler", None)
    for name in ("kineto_results", "_function_events", "_old_function_events"):
        if getattr(ended, name, None) is not None:
            setattr(ended, name, None)


def _plan() -> list[Burst]:
    # detail first: a script that stops after four steps still gets its lines
    return [Burst("detail", 2), Burst("light", 3), Burst("light", 3, after=LIGHT_GAP)]


def _activities() -> list[ProfilerActivity]:
    kinds = [ProfilerActivity.CPU]
    # is_initialized() first: is_available() may create a context the script never asked for
    if torch_private.cuda_initialized():
        kinds.append(ProfilerActivity.CUDA)
    return kinds
