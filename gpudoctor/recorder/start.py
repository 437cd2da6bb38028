"""Arms the recorder in a process: right after torch was imported, or for a block of the Python API."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from gpudoctor import stepping
from gpudoctor.recorder import (
    compile_calls,
    cuda,
    explicit_calls,
    gc_watch,
    optimizers,
    parallel_wrappers,
    schedulers,
    stopping,
)
from gpudoctor.recorder.agent import Agent
from gpudoctor.recorder.hooks import hook_backward, hook_optimizers
from gpudoctor.recorder.input_pipeline import InputPipeline
from gpudoctor.recorder.options import Options
from gpudoctor.recorder.out_of_memory import OutOfMemoryWatch
from gpudoctor.recording import BEGUN


def install(folder: str) -> None:
    """Arms the recorder for the whole life of this process and of the processes it forks.

    Args:
        folder: the recording's folder; `options.json` lies in it.
    """
    agent = arm(Path(folder))
    _for_life.append(agent)
    atexit.register(lambda: agent.finish("the script ended"))
    stopping.before_hard_exit(lambda: agent.finish("the script left through os._exit"))
    os.register_at_fork(after_in_child=agent.forked)


_for_life: list[Agent] = []


@contextmanager
def aside() -> Iterator[None]:
    """Keeps the recorder of the whole process, if there is one, out of a block that is recorded by itself."""
    watching = [agent for agent in _for_life if agent.live()]
    for agent in watching:
        agent.step_aside()
    try:
        yield
    finally:
        for agent in watching:
            agent.come_back()


def arm(recording: Path, stated: bool = False) -> Agent:
    """Installs every instrument in this process. Nothing is written before the first event.

    Args:
        recording: the recording's folder; `options.json` lies in it.
        stated: the caller states where steps end (`Agent.step_stated`); nothing is guessed.
    """
    agent = Agent(recording, Options.load(recording), stated)
    logging_compiles = agent.compiles.attach()

    def begun() -> None:
        facts = {
            "zero_unix_ns": agent.watch.zero_unix_ns,
            "pid": os.getpid(),
            "torch": torch.__version__,
            "root": agent.options.root,
            "foreign": agent.files.foreign,
            "compile_log": logging_compiles,
        }
        (agent.place.folder / BEGUN).write_text(json.dumps(facts), encoding="utf-8")

    agent.place.on_claim(begun)
    hook_optimizers(agent)
    hook_backward(agent)
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
    agent.note_workers = pipeline.note_workers
    cuda.watch_history(agent.patches)
    OutOfMemoryWatch(lambda: agent.place.folder, agent.files, agent.live, agent.watch.now).install()

    if not stated:
        agent.patches.on_undo(stepping.listen(_step_marks(agent)))
    agent.settings.install(agent.patches)
    agent.logging.install()
    gc_watch.watch(agent.patches, agent.tally, agent.files, agent.live, agent.watch.now)
    agent.evaluation.install(agent.patches)
    noted = agent.what_if.note_compile_call
    compile_calls.install(
        agent.patches, agent.watch, agent.files, agent.targets, agent.live, lambda: agent.steps, noted
    )
    schedulers.install(agent.patches, agent.watch, agent.files, agent.live)
    agent.scalers.install(agent.patches, agent.live)
    optimizers.install(agent.patches, agent.watch, agent.files, agent.live)
    parallel_wrappers.install(agent.patches, agent.watch, agent.files, agent.live)
    explicit_calls.install(agent.patches, agent.watch, agent.files, agent.live)
    return agent


def _step_marks(agent: Agent) -> Callable[[], None]:
    """What `gpudoctor.step()` calls."""
    marked = agent.guarded(agent.step_marked)

    def listener() -> None:
        if agent.live():
            marked()

    return listener
