"""The recorder inside the user's process: hooks the loop, takes the bursts, and stops the run when enough was seen.

Every hook returns at once while Dynamo traces, in forked children, and after the end. A hook that fails disarms the
recorder and is noted in the recording; it never reaches the script.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpudoctor.recorder import compile_calls, settings, stopping, torch_private
from gpudoctor.recorder.bursts import Bursts
from gpudoctor.recorder.compile_log import CompileLog
from gpudoctor.recorder.input_pipeline import InputPipeline
from gpudoctor.recorder.line_marks import LineMarks
from gpudoctor.recorder.loop import Loop
from gpudoctor.recorder.options import Options
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.watch import Watch
from gpudoctor.userfiles import UserFiles

FILE = "run.json"
STEADY_AFTER = 2  # steps without a compile before a burst starts: the first ones fill caches and optimizer state
LONG_STEP_SHARE = 0.1  # a step longer than this share of the budget is profiled once a burst
BARE_STEPS = 12  # unprofiled steady steps before an epoch's end stops the run: times are judged on them
HARD_BUDGET = 4  # times the budget after which the run is stopped even if no burst could be taken


class Agent:
    """State of one recorded process."""

    def __init__(self, folder: Path, options: Options, stated: bool = False) -> None:
        self.folder, self.options, self._stated = folder, options, stated
        self.patches = Patches()
        self.pid, self.done = os.getpid(), False
        self.steps = 0
        self.optimizer_events = 0
        self.files = UserFiles(options.root)
        self.watch = Watch(folder)
        self.compiles = CompileLog(folder, self.watch, self.files)
        self.marks = LineMarks(self.files)
        self.bursts = Bursts(folder, self.watch, self.marks, self.patches)
        self.loop = Loop()
        self.notes: list[str] = []
        self._thread: int | None = None
        self._depth = 0
        self._pending = False
        self._optimizer_in_backward: int | None = None
        self._backward_number = 0
        self._clean = 0
        self._bare = 0
        self._compiles_seen = 0
        self._boundary_ns: int | None = None
        self._first_ns: int | None = None
        self._own_ns = 0
        self._epoch_ended = False
        self._started: dict[int, int] = {}
        self._stopped = "the script ended"

    # -- liveness ------------------------------------------------------------------------------------------------

    def live(self) -> bool:
        """Whether events count: this process, not finished, Dynamo not tracing."""
        return not self.done and os.getpid() == self.pid and not is_compiling()

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
        self._started[identity] = self.watch.now()

    def optimizer_ended(self, identity: int, kind: str) -> None:
        """An optimizer stepped ("O") or a scaler skipped it ("S")."""
        now = self.watch.now()
        self.optimizer_events += 1
        self.watch.add(kind, self._started.pop(identity, now), now, identity, self._depth)
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

    def backward_begins(self) -> None:
        """A backward call is entered."""
        self._depth += 1
        if self._depth == 1:
            self._backward_number += 1

    def backward_ended(self, started: int) -> None:
        """A backward call returned."""
        self._depth -= 1
        if self._depth:
            return
        now = self.watch.now()
        self.watch.add("B", started, now)
        ended = self.loop.backward()
        if (self._pending or ended) and not self._stated:
            self._pending = False
            self.boundary(now)

    def batch_asked(self) -> Callable[[], None]:
        """The loop asks for a batch; lines of the dataset are not marked."""
        if self.loop.batch() and not self._stated:
            self.boundary(self.watch.now())
        return self.marks.resume if self.marks.pause() else _nothing

    def epoch_ended(self, steps_before: int) -> None:
        """A loader is exhausted; only one that steps were taken from ends a training epoch."""
        if self.steps > steps_before:
            self._epoch_ended = True

    def step_stated(self, started: int) -> None:
        """The caller says that a step ended."""
        now = self.watch.now()
        self.watch.add("T", started, now)
        self.boundary(now)

    # -- steps ---------------------------------------------------------------------------------------------------

    def boundary(self, now: int) -> None:
        """A step ended at `now`."""
        if self._thread is None:
            self._thread = threading.get_ident()
        step_ns = now - self._boundary_ns if self._boundary_ns is not None else 0
        self._first_ns = self._first_ns if self._first_ns is not None else now
        compiled = self.compiles.started != self._compiles_seen
        self._compiles_seen = self.compiles.started
        self._clean = 0 if compiled else self._clean + 1
        if self.loop.take_revision() and not self._stated:
            self.bursts.abandon()
            self._clean = 0
        ended, self.steps = self.steps, self.steps + 1
        self._bare += not (self.bursts.running or compiled or ended < STEADY_AFTER)
        if self.bursts.running:
            self.bursts.step_ended(ended, compiled)
        elif self._enough(now):
            self._stop()
        elif not self.bursts.done and self._clean >= STEADY_AFTER and threading.get_ident() == self._thread:
            if step_ns > LONG_STEP_SHARE * self.options.budget_s * 1e9:
                self.bursts.shorten()
            self.bursts.start(self.steps, step_ns)
        self._boundary_ns = self.watch.now()
        self._own_ns += self._boundary_ns - now

    def _enough(self, now: int) -> bool:
        options, elapsed_s = self.options, (now - (self._first_ns or now) - self._own_ns) / 1e9
        if options.run_to_end:
            return False
        if options.max_steps is not None and self.steps >= options.max_steps:
            self._stopped = f"{options.max_steps} steps were seen (--steps)"
        elif self.bursts.done and self._epoch_ended and self._bare >= BARE_STEPS:
            self._stopped = "an epoch ended"
        elif elapsed_s > options.budget_s * (1 if self.bursts.done else HARD_BUDGET):
            self._stopped = f"{elapsed_s:.0f} s of steps were seen (--budget)"
        else:
            return False
        open_files = stopping.files_open_for_writing(self.owns)
        if open_files and elapsed_s < options.budget_s * HARD_BUDGET:
            return False  # a checkpoint may be half written: wait for a boundary without one
        if open_files:
            self.notes.append(f"stopped while {open_files[0]} was open for writing: no boundary came without")
        return True

    def owns(self, descriptor: int) -> bool:
        """Whether a file descriptor is the recorder's."""
        return self.watch.owns(descriptor) or self.compiles.owns(descriptor)

    def _stop(self) -> None:
        self.finish(self._stopped, stopped=True)
        stopping.leave()

    # -- end -----------------------------------------------------------------------------------------------------

    def finish(self, reason: str, stopped: bool = False) -> None:
        """Writes what is left; the recording is complete afterwards."""
        if self.done or os.getpid() != self.pid:
            return
        try:
            self.bursts.stop()
        except Exception as error:
            self.notes.append(f"the last profiler burst was lost: {error!r}")
        self.done = True
        self.watch.flush()
        self.compiles.flush()
        if self.compiles.failed:
            self.notes.append(f"the compile log is incomplete: {self.compiles.failed}")
        if self.marks.exhausted:
            self.notes.append("a profiled step ran too many Python lines: part of its operators have no exact line")
        self.marks.save(self.folder)
        self.files.save_sources(self.folder)
        settings.save(self.folder, {})
        facts = {
            "zero_unix_ns": self.watch.zero_unix_ns,
            "steps": self.steps,
            "signal": self.loop.signal.value if self.loop.signal else None,
            "stopped": reason,
            "stopped_by_gpudoctor": stopped,
            "notes": self.notes + self.bursts.notes,
            "observed_ns": self.watch.now(),
        }
        (self.folder / FILE).write_text(json.dumps(facts), encoding="utf-8")

    def uninstall(self) -> None:
        """Takes every hook out again."""
        self.patches.undo()
        self.compiles.detach()
        self.watch.close()


def _nothing() -> None:
    return None


def install(folder: str) -> Agent | None:
    """Arms the recorder in this process; called right after torch was imported.

    Args:
        folder: the recording's folder; `options.json` lies in it. Each rank gets a sub-folder, claimed by the first
            process of that rank that imports torch.

    Returns:
        The agent, or None when another process of this rank is recorded already.
    """
    place = Path(folder) / f"rank{int(os.environ.get('RANK', '0'))}"
    try:
        place.mkdir()
    except FileExistsError:
        return None
    agent = arm(place, Options.load(Path(folder)))
    atexit.register(lambda: agent.finish("the script ended"))
    stopping.before_hard_exit(lambda: agent.finish("the script left through os._exit"))
    return agent


def arm(place: Path, options: Options, stated: bool = False) -> Agent:
    """Installs every instrument in this process.

    Args:
        place: the rank's folder.
        options: how to watch.
        stated: the caller states where steps end (`Agent.step_stated`); nothing is guessed.
    """
    agent = Agent(place, options, stated)
    logging_compiles = agent.compiles.attach()
    _hook_optimizers(agent)
    _hook_backward(agent)
    pipeline = InputPipeline(
        agent.patches,
        agent.watch,
        agent.files,
        agent.live,
        agent.guarded(agent.batch_asked),
        lambda: agent.steps,
        agent.guarded(agent.epoch_ended),
    )
    if not pipeline.install():
        agent.notes.append("this torch keeps its DataLoader elsewhere: input was not watched")
    compile_calls.install(agent.patches, agent.watch, agent.files, agent.live, lambda: agent.steps)
    agent.watch.flush()
    (place / "begun.json").write_text(
        json.dumps(
            {
                "zero_unix_ns": agent.watch.zero_unix_ns,
                "pid": agent.pid,
                "torch": torch.__version__,
                "root": agent.options.root,
                "foreign": agent.files.foreign,
                "compile_log": logging_compiles,
            }
        ),
        encoding="utf-8",
    )
    return agent


def _hook_optimizers(agent: Agent) -> None:
    begins, ended = agent.guarded(agent.optimizer_begins), agent.guarded(agent.optimizer_ended)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        if agent.live():
            begins(id(optimizer))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        if agent.live():
            ended(id(optimizer), "O")

    for handle in (register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)):
        agent.patches.on_undo(handle.remove)

    scaler = torch.amp.GradScaler
    original = getattr(scaler, "_maybe_opt_step", None)
    if original is None:
        return

    def _maybe_opt_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not agent.live():
            return original(self, optimizer, *args, **kwargs)
        before_it = agent.optimizer_events
        result = original(self, optimizer, *args, **kwargs)
        if agent.live() and agent.optimizer_events == before_it:
            ended(id(optimizer), "S")  # skipped for infinities, or compiled so that its hooks are inlined
        return result

    agent.patches.set(scaler, "_maybe_opt_step", _maybe_opt_step)


def _hook_backward(agent: Agent) -> None:
    engine = torch_private.engine_entry()
    if engine is None:
        agent.notes.append("this torch starts backward elsewhere: backward was not watched")
        return
    begins, ended = agent.guarded(agent.backward_begins), agent.guarded(agent.backward_ended)
    fast = torch_private.record_function_fast
    now, live = agent.watch.now, agent.live

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if not live():
            return engine(*args, **kwargs)
        started = now()
        begins()
        try:
            if fast is None:
                return engine(*args, **kwargs)
            with fast("gpudoctor::backward"):
                return engine(*args, **kwargs)
        finally:
            ended(started)

    agent.patches.set(torch.autograd, "_engine_run_backward", torch_private.as_torch_code(run_backward))
