"""What the recorder is doing, in a small file that the parent shows while the script runs."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gpudoctor.recorder.place import Place

FILE = "status.json"
WAITING, WARMING_UP, PROFILING = "waiting for the first step", "warming up", "profiling"
WATCHING, STOPPING = "watching", "stopping"
_EVERY_NS = 250_000_000  # a write takes some 50 µs: nothing, four times a second
_STEPS = 51  # the median of the latest steps, not of a warm-up long past


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at a recorded process.

    Attributes:
        phase: what is going on.
        steps: steps seen.
        step_ns: median of the latest unprofiled steps; None before there was one.
        elapsed_s: seconds of steps watched.
        budget_s: how many are wanted; None for no limit.
    """

    phase: str = WAITING
    steps: int = 0
    step_ns: int | None = None
    elapsed_s: float = 0.0
    budget_s: float | None = None


class Status:
    """Writes the file now and then.

    Args:
        place: the process's folder.
        wanted: somebody looks at it; otherwise nothing is written.
        budget_s: seconds of steps to watch; None for no limit.
    """

    def __init__(self, place: Place, wanted: bool, budget_s: float | None) -> None:
        self._place, self._wanted, self._budget_s = place, wanted, budget_s
        self._written_ns = -_EVERY_NS
        self._steps: deque[int] = deque(maxlen=_STEPS)

    def step(self, step_ns: int) -> None:
        """An unprofiled step took so long."""
        self._steps.append(step_ns)

    def put(self, phase: str, steps: int, elapsed_ns: int, now_ns: int, last: bool = False) -> None:
        """Writes the state, unless it was written just now; the last one always."""
        if not self._wanted or (now_ns - self._written_ns < _EVERY_NS and not last):
            return
        self._written_ns = now_ns
        step_ns = int(median(self._steps)) if self._steps else None
        state = Progress(phase, steps, step_ns, elapsed_ns / 1e9, self._budget_s)
        with contextlib.suppress(OSError):  # a full disk: nothing to show
            draft = self._place.folder / f".{FILE}"
            draft.write_text(json.dumps(asdict(state)), encoding="utf-8")
            draft.replace(self._place.folder / FILE)  # a reader sees it whole


def read(recording: Path) -> Progress:
    """The state of the recording's first process that trains; what cannot be read counts as none."""
    for path in sorted(recording.glob(f"rank*/{FILE}")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Progress(**json.loads(path.read_text(encoding="utf-8")))
    return Progress()
