"""The Python API: diagnose a function, a block of code, or what was recorded before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpudoctor
from gpudoctor.config import Config, load_config
from gpudoctor.diagnosis import Diagnosis
from gpudoctor.errors import GpuDoctorError, UsageError
from gpudoctor.profile import Profile
from gpudoctor.recording import Recording

if TYPE_CHECKING:
    from gpudoctor.recorder.agent import Agent

DEFAULT_STEPS = 20  # two warm-up, two detail and three light steps, each burst followed by one that settles, and a rest


def check(function: Callable[[], Any], steps: int = DEFAULT_STEPS) -> Diagnosis:
    """Calls a training step again and again and says what is slow in it.

    Args:
        function: one step, called without arguments.
        steps: how often it is called; below 12 nothing is left to be timed without the profiler.

    Returns:
        The diagnosis; the recording is kept under `.gpudoctor/` in the working folder.

    Raises:
        UsageError: `steps` is below 1, or a recording is running already.
    """
    if steps < 1:
        raise UsageError(f"steps={steps}: at least one call is needed")
    with _recording(getattr(function, "__qualname__", "function"), stated=True) as (session, agent):
        for _ in range(steps):
            started = agent.watch.now()
            function()
            agent.step_stated(started)
    return session.diagnosis


@dataclass(slots=True)
class Session:
    """A block under observation.

    Attributes:
        recording: where it is recorded.
    """

    recording: Recording
    _diagnosis: Diagnosis | None = None

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis, once the block has ended.

        Raises:
            GpuDoctorError: the block still runs.
        """
        if self._diagnosis is None:
            if any((rank / "run.json").is_file() for rank in self.recording.ranks):
                self._diagnosis = analyze(self.recording.path)
            else:
                raise GpuDoctorError("the recorded block still runs; ask for the diagnosis after it")
        return self._diagnosis

    def report(self) -> Path:
        """Writes the HTML report into the recording, and says where.

        Raises:
            GpuDoctorError: the block still runs.
        """
        from gpudoctor import reporters

        path = self.recording.path / "report.html"
        path.write_text(reporters.render("html", self.diagnosis), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """What a notebook shows: the diagnosis, once there is one."""
        try:
            return self.diagnosis._repr_html_()
        except GpuDoctorError as error:
            return f"<p>{escape(str(error))}</p>"


@contextmanager
def record() -> Iterator[Session]:
    """Observes the training loop in a `with` block; steps are found as `gpudoctor check` finds them.

    with gpudoctor.record() as session:
        train()
    session.diagnosis

    A notebook shows the last line as a table; `session.report()` writes the HTML report. An exception in the block
    passes through, and what was seen until then can be diagnosed.
    """
    with _recording("block", stated=False) as (session, _):
        yield session


def analyze(path: str | Path) -> Diagnosis:
    """Diagnoses a recording's folder, a Kineto trace or a compile log, with the configuration of the working folder.

    Raises:
        InputError: the path is none of them.
    """
    from gpudoctor.diagnose import diagnose
    from gpudoctor.engine.rulefile import load_rules

    config = load_config(Path.cwd())
    return diagnose(load(path), load_rules(config.rule_dirs), config)


def load(path: str | Path) -> Profile:
    """The Profile of a recording's folder, of a Kineto trace or of a compile log.

    Raises:
        InputError: the path is none of them.
    """
    from gpudoctor.ingest import open_path

    return open_path(Path(path))


_running: list[Recording] = []


@contextmanager
def _recording(label: str, stated: bool) -> Iterator[tuple[Session, Agent]]:
    from gpudoctor.recorder.options import Options
    from gpudoctor.recorder.start import arm, aside
    from gpudoctor.recording import create

    if _running:
        raise UsageError(f"a recording is running already ({_running[0].path.name}); end it first")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # Kineto prints its own progress otherwise
    cwd = Path.cwd()
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    manifest = {
        "gpudoctor": gpudoctor.__version__,
        "command": [label],
        "script": label,
        "argv": [],
        "started": started,
        "script_exit": None,
    }
    recording = create(cwd, label, manifest)
    Options(str(cwd), run_to_end=True).save(recording.path)
    _running.append(recording)
    with aside():
        agent = arm(recording.path, stated)
        agent.place.claim()
        try:
            yield Session(recording), agent
        finally:
            _running.clear()
            agent.finish("the block ended")
            agent.uninstall()


__all__ = ["Config", "Session", "analyze", "check", "load", "record"]
