"""The recorder inside the user's process: hooks the loop, takes the bursts, and stops the run when enough was seen.

Every hook returns at once while Dynamo traces, in forked children, and after the end. A hook that fails disarms the
recorder and is noted in the recording; it never reaches the script.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.compiler import is_compiling

from gpudoctor.recorder import compile_state, cuda, overhead, settings, status, stopping, torch_private
from gpudoctor.recorder.bursts import Bursts
from gpudoctor.recorder.compile_log import CompileLog
from gpudoctor.recorder.compile_targets import CompileTargets
from gpudoctor.recorder.debug_modes import DebugModes
from gpudoctor.recorder.decision import Decision, Seen
from gpudoctor.recorder.evaluation import EvaluationWatch
from gpudoctor.recorder.growth import GrowthWatch
from gpudoctor.recorder.host import Host
from gpudoctor.recorder.input_sampler import InputSampler
from gpudoctor.recorder.leaves import Leaves
from gpudoctor.recorder.line_marks import LineMarks
from gpudoctor.recorder.logging_calls import LoggingCalls
from gpudoctor.recorder.loop import Loop, Signal
from gpudoctor.recorder.module_calls import ModuleCalls
from gpudoctor.recorder.open_files import OpenFiles
from gpudoctor.recorder.options import Options
from gpudoctor.recorder.padded_inputs import PaddedInputs
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.place import Place, world_size
from gpudoctor.recorder.scalers import Scalers, autocast_around
from gpudoctor.recorder.settings_watch import SettingsWatch
from gpudoctor.recorder.tally import Tally
from gpudoctor.recorder.watch import Watch
from gpudoctor.recorder.what_if import WhatIf
from gpudoctor.recording import MEMORY_FILE
from gpudoctor.userfiles import UserFiles

FILE = "run.json"
MANY_BATCHES = 32  # beyond four times what a step usually takes: a validation pass too long to be profiled along
MAX_REVISIONS = 3  # times the bursts are taken anew because the steps had been cut wrongly
STEADY_AFTER = 2  # steps without a compile before a burst starts: the first ones fill caches and optimizer state
LONG_STEP_SHARE = 0.1  # a step longer than this share of the budget is profiled once a burst


class Agent:
    """State of one recorded process.

    Args:
        recording: the recording's folder.
        options: how to watch.
        stated: the caller states where steps end; nothing is guessed.
    """

    def __init__(self, recording: Path, options: Options, stated: bool = False) -> None:
        self.recording, self.options, self._only_stated = recording, options, stated
        self.place = Place(recording)
        self.patches = Patches()
        self.pid, self.done = os.getpid(), False
        self.files = UserFiles(options.root)
        self.files.remember(sys.argv[0] if sys.argv else "")
        self.watch = Watch(self.place)
        self.compiles = CompileLog(self.place, self.watch, self.files, self.patches)
        self.targets = CompileTargets(self.files)
        self.what_if = WhatIf(self.files, options.what_if, options.what_if_limit_s)
        self.calls = ModuleCalls(self.files, self.watch.now)
        self.evaluation = EvaluationWatch(self.calls, self.live)
        padded = PaddedInputs(self.files, self.watch.now)
        self.marks = LineMarks(self.files, self.targets, self.what_if, self.calls, padded)
        self.tally = Tally(self.watch)
        self.logging = LoggingCalls(self.patches, self.tally, self.files, self.live, self.watch.now)
        self.bursts = Bursts(self.place, self.watch, self.marks, self.patches, self.save_lines)
        self.growth = GrowthWatch(self.files, self.watch.add, self.watch.now)
        self.settings = SettingsWatch(self.files, self.live)
        self.scalers = Scalers(self.watch, self.files)
        self.notes: list[str] = []
        self.note_workers: Callable[[], None] = _nothing
        self._begin()

    def _begin(self) -> None:
        """What every process, forked ones too, starts from."""
        self.loop = Loop()
        self._event_cost_ns: int | None = None
        self.status = status.Status(
            self.place, self.options.progress, None if self.options.run_to_end else self.options.budget_s
        )
        self.host = Host()
        self.sampler = InputSampler(self.files)
        self.debug_modes = DebugModes()
        self.decision = Decision(self.recording, self.options, OpenFiles(self.owns))
        self._thread: int | None = None
        self._aside_ns = 0
        self._stated = self._only_stated
        self._guessed = 0
        self._depth = 0
        self._pending = False
        self._optimizer_in_backward: int | None = None
        self._backward_number = 0
        self._clean = 0
        self._compiles_seen = 0
        self._boundary_ns: int | None = None
        self._first_ns: int | None = None
        self._own_ns = 0
        self._stepping: list[tuple[int, int, int]] = []
        self._leaves = Leaves()
        self._continues = self._creates_graph = False
        self._autocast: dict[str, object] | None = None
        self._revisions = 0
        self._asked = self._usually_asked = 0
        self._counting = False
        self.steps = 0
        self.optimizer_events = 0

    def forked(self) -> None:
        """Called in a child that was forked: it is watched on its own, if it trains."""
        if self.done:
            return
        self.pid = os.getpid()
        self.place.forget()
        self.watch.forget()
        self.tally.forget()
        self.compiles.forget()
        self.targets.forget()
        self.scalers.forget()
        self.marks.forget()
        self.bursts.forget()
        self.calls.forget()
        self.evaluation.begin()
        self.growth.begin()
        self.notes.clear()
        self._begin()

    # -- liveness ------------------------------------------------------------------------------------------------

    @torch_private.as_torch_code  # called where Dynamo looks at every frame
    def live(self) -> bool:
        """Whether events count: this process, not finished, Dynamo not tracing."""
        return not (self.done or self._aside_ns) and os.getpid() == self.pid and not is_compiling()

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A hook that cannot hurt: hidden from Dynamo, and disarming on its own errors."""

        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except Exception as error:
                self.notes.append(f"recording stopped early: {function.__name__} failed with {error!r}")
                self.finish("gpudoctor's recorder failed")
                return None

        return torch_private.hidden_from_dynamo(call)

    # -- events --------------------------------------------------------------------------------------------------

    def optimizer_begins(self, identity: int) -> None:
        """An optimizer is about to step."""
        here = threading.get_ident()
        # what is left over from a step that raised is dropped when its optimizer steps again
        left = next((at for at, entry in enumerate(self._stepping) if entry[:2] == (identity, here)), None)
        del self._stepping[len(self._stepping) if left is None else left :]
        self._stepping.append((identity, here, self.watch.now()))

    def optimizer_ended(self, identity: int, kind: str) -> None:
        """An optimizer stepped ("O") or a scaler skipped it ("S")."""
        self.tally.flush()
        now, here = self.watch.now(), threading.get_ident()
        self.optimizer_events += 1
        self.place.claim()
        begun = next((entry for entry in reversed(self._stepping) if entry[:2] == (identity, here)), None)
        if begun is not None:
            del self._stepping[self._stepping.index(begun) :]
        self.watch.add(kind, begun[2] if begun is not None else now, now, identity, self._depth, here)
        if any(thread == here for _, thread, _ in self._stepping):  # a wrapper's step goes on around this one
            return
        if self._depth:  # optimizer-in-backward: all steps of one backward call are one
            if self._optimizer_in_backward == self._backward_number:
                return
            self._optimizer_in_backward = self._backward_number
            identity = 0
        if self.loop.optimizer(identity) and not self._stated:
            if self._depth:
                self._pending = True  # starting or stopping a profiler inside the engine loses the session
            else:
                self.boundary(now)

    def backward_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A backward call is entered."""
        self.place.claim()
        self._depth += 1
        self.calls.in_backward = True
        if self._depth > 1:
            return
        self.evaluation.trained()
        self._backward_number += 1
        self.debug_modes.backward(self.bursts.running)
        outputs, self._creates_graph, accumulates = torch_private.engine_flags(args, kwargs)
        # gradients of a penalty (`autograd.grad`) belong to the forward pass, and so under autocast
        self._autocast = autocast_around(outputs, self.files) if accumulates else None
        # where optimizers are seen nobody asks
        self._continues = accumulates and self.loop.signal is not Signal.OPTIMIZER and self._leaves.continues()

    def backward_ended(self, started: int, args: tuple[Any, ...]) -> None:
        """A backward call returned."""
        self._depth -= 1
        if self._depth:
            return
        self.calls.in_backward = False
        now = self.watch.now()
        flags = (self._continues, self._creates_graph, *([self._autocast] if self._autocast else []))
        self.watch.add("B", started, now, threading.get_ident(), *flags)
        if self.loop.signal is not Signal.OPTIMIZER:
            self._leaves.remember(torch_private.engine_flags(args, {})[0])
        if not self._validating():
            self._usually_asked = max(self._usually_asked, self._asked)
        self._asked = 0
        ended = not self._stepping and self.loop.backward(self._continues)  # a closure's backward ends no step
        if (self._pending or ended) and not self._stated:
            self._pending = False
            self.boundary(now)

    def batch_asked(self) -> Callable[[], None]:
        """The loop asks for a batch; lines of the dataset are not marked."""
        self.tally.flush()
        self.place.claim()
        # a loader in another thread is prefetching: its batches end no step
        here = threading.current_thread() is threading.main_thread()
        if here and self.loop.batch() and not self._stated:
            self.boundary(self.watch.now())
        elif here:
            self._asked += 1
            if self._validating():
                self.bursts.cut_short()  # thousands of batches perhaps: nothing to profile
            if self._asked > self._usually_asked > 0:
                loop = self.files.site(sys._getframe(1))
                self.evaluation.arm("validation", (loop.get("file"), loop.get("line")))
        if not self.marks.pause():
            return self.evaluation.pause() or _nothing
        self.sampler.start()
        return self._batch_made

    def _validating(self) -> bool:
        """Whether far more batches were asked for since the last backward call than a step takes."""
        return bool(self._usually_asked) and self._asked > MANY_BATCHES + 4 * self._usually_asked

    def _batch_made(self) -> None:
        self.sampler.stop()
        self.marks.resume()

    def epoch_ended(self, steps_before: int) -> None:
        """A loader is exhausted; only one that steps were taken from ends a training epoch."""
        if self.steps > steps_before:
            self.decision.epoch_ended = True

    def step_stated(self, started: int) -> None:
        """The caller says that a step ended."""
        now = self.watch.now()
        self.watch.add("T", started, now)
        self.boundary(now)

    def step_marked(self) -> None:
        """The script says that a step ended; from the first mark on nothing is guessed."""
        self.place.claim()
        now = self.watch.now()
        self.watch.add("T", now, now)
        if not self._stated:
            self._stated = True
            if self.steps:
                self._start_anew(now)
        if not self._depth:  # a profiler must not start or stop in a backward call
            self.boundary(now)

    def step_aside(self) -> None:
        """The script records a block itself: nothing is watched until `come_back`, as two profilers would crash."""
        self.evaluation.disarm()
        self.bursts.abandon()
        self.bursts.idle = True
        self._aside_ns = self.watch.now()

    def come_back(self) -> None:
        """The script's own recording ended."""
        note = "the script recorded a block itself (gpudoctor.record or check): the block was not watched"
        if note not in self.notes:
            self.notes.append(note)
        self.watch.add("P", self._aside_ns, self.watch.now(), len(self.bursts.taken), "aside")
        self.bursts.idle, self._aside_ns, self._clean, self._boundary_ns = False, 0, 0, None
        self._stepping.clear()

    # -- steps ---------------------------------------------------------------------------------------------------

    def boundary(self, now: int) -> None:
        """A step ended at `now`."""
        self.tally.flush()
        self.logging.look_again()
        if self._thread is None:
            self._thread = threading.get_ident()
        self.evaluation.disarm()
        step_ns = now - self._boundary_ns if self._boundary_ns is not None else 0
        self._first_ns = self._first_ns if self._first_ns is not None else now
        compiled = self.compiles.started != self._compiles_seen
        self._compiles_seen = self.compiles.started
        self._clean = 0 if compiled else self._clean + 1
        if self.loop.take_revision() and not self._stated:
            self._start_anew(now)
        ended, self.steps = self.steps, self.steps + 1
        self.growth.step_ended(ended, now)
        if not (self.bursts.running or compiled or ended < STEADY_AFTER or self._counting):
            self.decision.bare += 1
            self.status.step(step_ns)
        profiled = self.bursts.running
        if profiled:
            self.bursts.step_ended(ended, compiled)
            if self.decision.at_limit(self._seen(now)) and self.decision.stop_now(self._seen(now)):
                self._stop()
        elif self.decision.stop_now(self._seen(now)):
            self._stop()
        elif not self.bursts.done and self._settled() and threading.get_ident() == self._thread:
            if step_ns > LONG_STEP_SHARE * self.options.budget_s * 1e9:
                self.bursts.shorten()
            self.bursts.start(self.steps, step_ns)
        self._count_kept(ended, now, profiled)
        for reading in cuda.memory_reading():
            self.watch.add("G", now, now, *reading)
        self.status.put(self._phase(), self.steps, self._watched_ns(now), now)
        self._boundary_ns = self.watch.now()
        self._own_ns += self._boundary_ns - now

    def _count_kept(self, step: int, now: int, profiled: bool) -> None:
        """Counts live tensors where no burst has just begun; the next step is not to be timed then."""
        here = threading.get_ident() == self._thread and not self.bursts.running
        self._counting = here and self.growth.due(step, self._watched_ns(now), profiled)
        if self._counting:
            self.growth.count(step, sys._getframe())

    def _phase(self) -> str:
        if self.bursts.running:
            return status.PROFILING
        if self.decision.stopping:
            return status.STOPPING
        return status.WATCHING if self.bursts.done else status.WARMING_UP

    def _watched_ns(self, now: int) -> int:
        """How long the run was watched, without what the recorder itself took."""
        return now - (self._first_ns or now) - self._own_ns

    def _start_anew(self, now: int) -> None:
        """What was taken for steps was none (validation before training, say): everything is watched anew."""
        self.bursts.abandon()
        self._clean = 0
        if self._revisions < MAX_REVISIONS:
            self._revisions += 1
            self._guessed = self.steps
            self.growth.start_anew(self.steps)
            self.bursts.restart()
            self.decision.start_anew()
            self._first_ns, self._own_ns = now, 0

    def _settled(self) -> bool:
        """Whether a burst may start: the asked-for warm-up is over, and nothing compiled lately."""
        if self.options.warmup is not None and self.steps < self.options.warmup:
            return False
        return self._clean >= STEADY_AFTER

    def _seen(self, now: int) -> Seen:
        """What the decision to stop is made on."""
        # an inference loop in a script that has made an optimizer: training follows
        inference = self.loop.signal is Signal.BATCH and not self._stated
        follows = inference and torch_private.optimizer_made()
        return Seen(now, self.steps, self._guessed, self._watched_ns(now), self.bursts.done, follows)

    def owns(self, descriptor: int) -> bool:
        """Whether a file descriptor is the recorder's."""
        return self.watch.owns(descriptor) or self.compiles.owns(descriptor)

    def _stop(self) -> None:
        if self.decision.late:
            self.notes.append("stopped while a file was being written: no step's end came without")
        if self.growth.due_at_end(self.steps - 1) and not self.bursts.running:
            self.growth.count(self.steps - 1, sys._getframe())
        self.finish(self.decision.reason, stopped=True)
        if self.options.stop == "raise":
            raise SystemExit(0)
        stopping.leave(self._foresee)

    def _foresee(self) -> None:
        """Has the what-if measured: the recording is complete, and nothing is recorded any more."""
        self.uninstall()

        def show(words: str) -> None:
            now = self.watch.now()
            self.status.put(words, self.steps, self._watched_ns(now), now, last=True)

        self.what_if.measure(self.place.folder, world_size(), bool(self.compiles.started), show)

    # -- end -----------------------------------------------------------------------------------------------------

    def finish(self, reason: str, stopped: bool = False) -> None:
        """Writes what is left; the recording is complete afterwards."""
        if self.done or os.getpid() != self.pid:
            return
        if not self.place.claimed:
            self.done = True
            return
        now = self.watch.now()
        self.status.put(status.STOPPING, self.steps, self._watched_ns(now), now, last=True)
        parts: list[tuple[str, Callable[[], None]]] = [
            ("the last profiler burst", self.bursts.close),
            ("what loader workers took", self.note_workers),
            ("the last of what was logged", self.tally.flush),
            ("the watch log", self.watch.flush),
            ("the compile log", self.compiles.flush),
            ("the compiler's counters", lambda: compile_state.save(self.place.folder)),
            ("the lines of operators", self.save_lines),
            ("the settings", lambda: settings.save(self.place.folder, self.settings.set_by, self.debug_modes.ratios())),
            ("the dataset's lines", lambda: self.sampler.save(self.place.folder)),
            ("what stays alive", lambda: self.growth.save(self.place.folder)),
            ("the host's state", lambda: self.host.save(self.place.folder)),
            ("the profiler's overhead", self._measure_overhead),
        ]
        for what, write in parts:
            try:
                write()
            except Exception as error:  # a full disk, say: the script's own end must not change
                self.notes.append(f"{what}: lost ({error})")
            self.done = True
        with contextlib.suppress(OSError):
            self._write_facts(reason, stopped)

    def save_lines(self) -> None:
        """Writes what ties operators to the user's lines; after each burst, as the process may be killed later."""
        self.marks.save(self.place.folder)
        self.files.save_names(self.place.folder, torch_private.dropped_prefixes())
        self.files.save_sources(self.place.folder)

    def _measure_overhead(self) -> None:
        # never while another profiler runs, nor where none of ours did: the first session takes a second to set up
        if self.bursts.taken and not torch_private.profiler_running():
            self._event_cost_ns = overhead.event_cost_ns()

    def _write_facts(self, reason: str, stopped: bool) -> None:
        notes = self.notes + self.bursts.notes
        if self.compiles.failed:
            notes.append(f"the compile log is incomplete: {self.compiles.failed}")
        if self.marks.failed:
            notes.append(f"operators have no exact line from some point on: {self.marks.failed}")
        if self.marks.exhausted:
            notes.append("a profiled step ran too many Python lines: part of its operators have no exact line")
        if self.host.why_no_gpu is not None:
            notes.append(f"clocks and throttling of the GPU were not read: {self.host.why_no_gpu}")
        if self.calls.failed:
            notes.append("the calls of modules were not watched to the end")
        if self.marks.blocked:
            notes.append("a debugger or coverage traces the script: operators have the function's line, not their own")
        if self.marks.interrupted:
            notes.append("the script set sys.settrace in a profiled step: from there on operators have no exact line")
        facts = {
            "zero_unix_ns": self.watch.zero_unix_ns,
            "steps": self.steps - self._guessed,
            "signal": self.loop.signal.value if self.loop.signal else None,
            "stopped": reason,
            "stopped_by_gpudoctor": stopped,
            "notes": notes + ([f"the watch log is incomplete: {self.watch.failed}"] if self.watch.failed else []),
            "observed_ns": self.watch.now(),
            "event_cost_ns": self._event_cost_ns,
            "module_calls_failed": self.calls.failed,
            "gpu_memory": cuda.capacities(),
            "memory_snapshot": MEMORY_FILE if (self.place.folder / MEMORY_FILE).is_file() else None,
        }
        (self.place.folder / FILE).write_text(json.dumps(facts), encoding="utf-8")

    def uninstall(self) -> None:
        """Takes every hook out again."""
        self.patches.undo()
        self.compiles.detach()
        self.watch.close()


def _nothing() -> None:
    return None
