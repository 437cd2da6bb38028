"""What the parent tells the recorder in the child, as JSON in one file of the recording."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "options.json"


@dataclass(frozen=True, slots=True)
class Options:
    """How to watch the run.

    Attributes:
        budget_s: seconds of steps to watch before stopping; 60 is long enough for a few hundred usual steps and
            short enough to wait for.
        max_steps: stop after this many steps; null for no limit.
        run_to_end: never stop the script.
        stop: how the script is ended: "exit" (at once, nothing of it runs any more) or "raise" (SystemExit at the
            step's end: `finally` blocks and atexit handlers run).
        warmup: steps that are never profiled; null for as long as the loop needs to settle.
        progress: somebody looks at the run's progress; it is written down now and then.
        what_if: what is done with the model before the process leaves: "explain" (traced), "inductor" (compiled as
            well) or "none".
        what_if_limit_s: seconds that may take; null for the kind's own limit.
        root: the user's working folder; files below it are shown relative to it.
    """

    root: str
    budget_s: float = 60.0
    max_steps: int | None = None
    run_to_end: bool = False
    stop: str = "exit"
    warmup: int | None = None
    progress: bool = False
    what_if: str = "explain"
    what_if_limit_s: float | None = None

    def save(self, folder: Path) -> None:
        """Writes the options into the recording folder."""
        (folder / FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Options:
        """Reads what `save` wrote."""
        return cls(**json.loads((folder / FILE).read_text(encoding="utf-8")))
