"""What remedies save in random programs, and what the replay of their recordings says that they save."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from gpudoctor.analysis.simulate.edits import weights
from gpudoctor.analysis.simulate.price import simulation
from gpudoctor.analysis.simulate.replay import ends
from gpudoctor.analysis.simulate.targets import edit_of
from tests.synthetic.random_edits import Touched
from tests.synthetic.random_programs import random_program, run
from tests.synthetic.random_trace import ids, profile


@dataclass(frozen=True, slots=True)
class _Edit:
    """How a rule would ask for a remedy: kind of the edit, table that its ids are of, which they are, what remains."""

    kind: str
    table: str
    of: Callable[[Touched], Collection[int]]
    remains: float | None = None


EDITS = {
    "drop_sync": _Edit("drop", "ops", lambda touched: touched.operators),
    "drop_explicit_sync": _Edit("drop", "runtime_calls", lambda touched: touched.calls),
    "drop_h2d": _Edit("drop", "kernels", lambda touched: touched.activities),
    "overlap_h2d": _Edit("overlap", "kernels", lambda touched: touched.streams),
    "no_loader_wait": _Edit("drop", "loaders", lambda touched: [0]),
    "merge_small": _Edit("merge", "kernels", lambda touched: {*touched.durations_ns, *touched.activities}, 0.5),
    "scale_gemm": _Edit("scale", "kernels", lambda touched: touched.durations_ns, 0.5),
    "zero_launch": _Edit("launch", "all", lambda touched: []),
    "drop_kernels": _Edit("drop", "ops", lambda touched: touched.operators),
    "drop_memory": _Edit("drop", "runtime_calls", lambda touched: touched.calls),
}
"""Remedies that an edit can express from one rank's recording, which does not say how late other ranks were. To have
compute wait later for a reduction is no edit."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One remedy of one program; savings are shares of the run.

    Attributes:
        seed: the program's.
        bottleneck: the program's.
        remedy: name of the remedy.
        true: what it saves.
        predicted: what the replay says; nan where it cannot say.
    """

    seed: int
    bottleneck: str
    remedy: str
    true: float
    predicted: float

    @property
    def points(self) -> float:
        """The error."""
        return 100 * (self.predicted - self.true)


def predictions(seed: int, whole_us: bool = False) -> Iterator[Prediction]:
    """All remedies that change something in one program, and that an edit can express."""
    program = random_program(seed)
    before = run(program)
    seen = profile(before, whole_us)
    simulated = simulation(seen)
    assert simulated is not None, "every program has steps"
    graph, player = simulated.graph, simulated.player
    base = ends(graph, simulated.times)
    for remedy in program.remedies:
        if (ask := EDITS.get(remedy)) is None:
            continue
        true = (before.total_ns - run(program, remedy).total_ns) / before.total_ns
        wanted = sorted(ask.of(ids(before.touched(remedy), before, seen)))
        edit = edit_of(seen, graph, ask.kind, ask.table, wanted, ask.remains)
        predicted = float("nan")
        if edit is not None:
            predicted = float((base - ends(graph, player.times(*weights(graph, edit)))).sum()) / before.total_ns
        yield Prediction(seed, program.recipe.bottleneck, remedy, true, predicted)
