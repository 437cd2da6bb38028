"""When enough was seen, so that the run can be stopped at the end of a step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpudoctor.recorder.open_files import OpenFiles
from gpudoctor.recorder.options import Options
from gpudoctor.recorder.place import rank, world_size
from gpudoctor.recorder.rendezvous import Rendezvous

BARE_STEPS = 12  # unprofiled steady steps before an epoch's end stops the run: times are judged on them
HARD_BUDGET = 4  # times the budget after which the run is stopped even if no burst could be taken


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen at a step's end.

    Attributes:
        now: nanoseconds from the recording's zero.
        steps: steps so far, and of which were guessed wrongly and do not count.
        watched_ns: how long the run was watched, without what the recorder itself took.
        bursts_done: every profiler burst was taken.
        training_follows: what is seen looks like inference, in a script that has made an optimizer.
    """

    now: int
    steps: int
    guessed: int
    watched_ns: int
    bursts_done: bool
    training_follows: bool


class Decision:
    """Decides, together with the other ranks, whether a run is stopped.

    Attributes:
        reason: why the run ends, one phrase.
        stopping: enough was seen; only files that are being written are waited for.
        bare: unprofiled steady steps so far.
        epoch_ended: a loader that steps were taken from was exhausted.
        late: no step's end came without a file being written.
    """

    def __init__(self, recording: Path, options: Options, open_files: OpenFiles) -> None:
        self._recording, self._options, self._open_files = recording, options, open_files
        self._rendezvous: Rendezvous | None = None
        self.reason = "the script ended"
        self.stopping = False
        self.late = False
        self.start_anew()

    def start_anew(self) -> None:
        """What was taken for steps was none."""
        self.bare, self.epoch_ended = 0, False

    def at_limit(self, seen: Seen) -> bool:
        """Whether as many steps were seen as the user asked for."""
        limit = self._options.max_steps
        return limit is not None and seen.steps - seen.guessed >= limit

    def stop_now(self, seen: Seen) -> bool:
        """Whether the run is to be stopped at the step's end that was just seen; all ranks give the same answer."""
        if self._options.run_to_end:
            return False
        if self._rendezvous is None:
            self._rendezvous = Rendezvous(self._recording, rank(), world_size())
        return self._rendezvous.stop_now(seen.steps, self._enough(seen))

    def _enough(self, seen: Seen) -> bool:
        budget_s, elapsed_s = self._options.budget_s, seen.watched_ns / 1e9
        if seen.training_follows and elapsed_s <= budget_s * HARD_BUDGET:
            return False
        if self.at_limit(seen):
            self.reason = f"{self._options.max_steps} steps were seen (--steps)"
        elif seen.bursts_done and self.epoch_ended and self.bare >= BARE_STEPS:
            self.reason = "an epoch ended"
        elif elapsed_s > budget_s * (1 if seen.bursts_done else HARD_BUDGET):
            self.reason = f"{elapsed_s:.0f} s of steps were seen (--budget)"
        else:
            return False
        self.stopping = True
        if self._open_files.quiet(seen.now / 1e9):
            return True
        if elapsed_s < budget_s * HARD_BUDGET:
            return False
        self.late = True
        return True
