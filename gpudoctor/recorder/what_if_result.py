"""What the what-if writes into the rank's folder, and how others read it. Free of torch: the parent reads it too."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "what_if.json"
TRACE = "what_if_trace.log"
SCRATCH_PREFIX = "gpudoctor-what-if-"
EXPLAIN, INDUCTOR, NONE = "explain", "inductor", "none"
LIMIT_S = {EXPLAIN: 30.0, INDUCTOR: 300.0, NONE: 0.0}
"""Seconds it may take: tracing took 0.4 to 4.4 s on usual models, a first Inductor compile on a CPU 54 to 96 s."""


@dataclass(slots=True)
class Result:
    """The outcome so far; it is written when the what-if begins and again after each part.

    Attributes:
        running: the what-if had begun and not ended when this was written.
        scratch: temporary folder that it uses meanwhile.
        reason: why nothing was measured; None when something was.
        limit_s: seconds it may take.
        module: class of the module that was traced.
        file: user's file that calls it.
        line: the line of the call.
        function: the function of the call.
        modules: modules that the step calls from outside any other.
        forward_share: this module's share of the time in those, 0 to 1.
        remade: tensors of its input that were made anew: too large to be kept, or in the middle of a graph.
        graph_ops: operators of each graph, in the order they were made.
        guards: guards on the traced code.
        seconds: how long the tracing took, Dynamo's import included.
        eager_kernels: operators of its forward that compute, run eagerly; with Inductor only.
        kernels: kernels that Inductor generated for its forward.
        extern_calls: library calls that Inductor left in its forward.
        inductor_seconds: how long that took.
        inductor_failure: why it was not to be had.
    """

    running: bool = False
    scratch: str | None = None
    reason: str | None = None
    limit_s: float = 0.0
    module: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    modules: int = 0
    forward_share: float | None = None
    remade: int = 0
    graph_ops: list[int] = field(default_factory=list)
    guards: int | None = None
    seconds: float | None = None
    eager_kernels: int | None = None
    kernels: int | None = None
    extern_calls: int | None = None
    inductor_seconds: float | None = None
    inductor_failure: str | None = None

    def save(self, folder: Path) -> None:
        """Writes it; a reader sees all of it or what was there before."""
        draft = folder / f".{FILE}"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(folder / FILE)


def read(rank: Path) -> Result | None:
    """What a process wrote; None when there is nothing that can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Result(**json.loads((rank / FILE).read_text(encoding="utf-8")))
    return None


def interrupted(recording: Path) -> bool:
    """Whether some process ended in its what-if: its exit code is then no word of the script's."""
    return any(result.running for result in _all(recording))


def tidy(recording: Path) -> None:
    """Removes what a what-if that was interrupted left in the temporary folder."""
    for result in _all(recording):
        if result.running and result.scratch is not None and Path(result.scratch).name.startswith(SCRATCH_PREFIX):
            shutil.rmtree(result.scratch, ignore_errors=True)


def _all(recording: Path) -> list[Result]:
    found = (read(path.parent) for path in recording.glob(f"rank*/{FILE}"))
    return [result for result in found if result is not None]
