"""Random training programs on a GPU, with and without a remedy: the truth for whatever predicts what a fix saves.

Built from how the hardware works, and from nothing that a prediction is made with:

    program = random_program(7)                    # seeds from 10,000 on are left for a final, unseen judgement
    before = run(program)
    for remedy in program.remedies:                # those of REMEDIES that find something to do in it
        after = run(program, remedy)               # the same noise for all that stays
        truth = before.total_ns - after.total_ns
        edit = before.touched(remedy)              # what the remedy takes out, shortens or moves
    seen = profile(before)                         # random_trace: what the reader makes of its Kineto trace
    edit = ids(edit, before, seen)                 # random_trace: in ids of its tables kernels, runtime_calls and ops

**What the machine does.** A main thread and autograd's, which take turns; launch calls that wait when 1,022 launches
are outstanding; streams in order, events between them; kernels that fill the device exclude each other; one copy engine
a direction; copies of pageable memory that hold the host up, small ones that do not; `.item()`, synchronisations,
`cudaFree` that wait; graphs; a DataLoader whose workers go on while the loop computes: a loop that got faster waits
longer for them. **What it does not**: share bandwidth or clocks among kernels, or processors among threads.

**Other ranks** run the same program: a collective lasts until the last rank has come, which is late by what was drawn
for it, counted from this rank's arrival. So a remedy helps all ranks alike.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.synthetic import random_remedies
from tests.synthetic.random_edits import Touched, touched
from tests.synthetic.random_host import Host, Operator, Timeline
from tests.synthetic.random_recipe import Recipe, draw
from tests.synthetic.random_remedies import Remedied, changes
from tests.synthetic.random_steps import Steps

REMEDIES: tuple[str, ...] = tuple(random_remedies.REMEDIES)
"""Names of all remedies."""

STEPS = 4
"""Steps of a program."""

PREFETCH = 2
"""Batches that a DataLoader asks of each worker in advance (its `prefetch_factor`)."""


@dataclass(slots=True)
class Workers:
    """A DataLoader's workers, each of which makes every so many-th batch.

    Attributes:
        make_ns: what each batch takes its worker.
        workers: how many there are.
        first_ns: when the first batch is there: the loop had been running before.
    """

    make_ns: tuple[int, ...]
    workers: int
    first_ns: int
    _asked: list[int] = field(default_factory=list)
    _ready: list[int] = field(default_factory=list)

    def ready_ns(self, batch: int, now_ns: int) -> int:
        """A worker begins a batch when it has made its last, and the loop has taken one that frees a place."""
        assert batch == len(self._ready), "batches are taken in order"
        ahead = batch - self.workers * PREFETCH
        asked = self._asked[ahead] if ahead >= 0 else 0
        if batch < self.workers:  # evenly spaced, as workers are that had the time to spread
            ready = self.first_ns + self.make_ns[batch] * batch // self.workers
        else:
            ready = max(self._ready[batch - self.workers], asked) + self.make_ns[batch]
        self._ready.append(ready)
        self._asked.append(max(now_ns, ready))
        return ready


@dataclass(frozen=True, slots=True)
class Program:
    """A training program.

    Attributes:
        seed: what it was made from; -1 for one that was not.
        recipe: what it is like.
        steps: its operators, step by step.
        loader: what its workers take for each batch, how many they are and when the first comes; None without workers.
        remedies: those that find something to do in it.
    """

    seed: int
    recipe: Recipe
    steps: list[list[Operator]]
    loader: tuple[tuple[int, ...], int, int] | None
    remedies: tuple[str, ...]

    def remedied(self, remedy: str) -> Remedied:
        """The repaired program."""
        return random_remedies.REMEDIES[remedy](self.steps)


@dataclass(frozen=True, slots=True)
class Happened:
    """A program that ran.

    Attributes:
        program: the program, without the remedy.
        timeline: what happened.
    """

    program: Program
    timeline: Timeline

    @property
    def total_ns(self) -> int:
        """From the first step's begin to the end of all work, on the host and on the device."""
        return self.timeline.end_ns

    @property
    def step_ns(self) -> list[int]:
        """Each step on the host."""
        return [end - start for start, end in self.timeline.steps]

    def touched(self, remedy: str) -> Touched:
        """What a remedy would change in this run, which is one without a remedy."""
        return touched(self.timeline, self.program.remedied(remedy))


def random_program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    return program_of(draw(rng), rng, seed)


def program_of(recipe: Recipe, rng: random.Random, seed: int = -1) -> Program:
    """A program like that."""
    steps = Steps(recipe, rng)
    made = [steps.step(number) for number in range(STEPS)]
    loader = None
    if recipe.loader_ns and recipe.workers:
        each = recipe.loader_ns * recipe.workers
        makes = tuple(steps.parts.about(each, 0.1) for _ in range(STEPS))
        loader = (makes, recipe.workers, round(recipe.loader_ns * rng.random()))
    found = tuple(name for name, remedy in random_remedies.REMEDIES.items() if changes(made, remedy(made).steps))
    return Program(seed, recipe, made, loader, found)


def item_at_end(gpu_bound: bool) -> Program:
    """A step with `.item()` at its end, by which the host loses its lead.

    Bound by the GPU (300 kernels of 100 µs each), it costs the device what the host needs until the next step's first
    launch; the host's own wait is no loss, since without it the host waits elsewhere, or runs ahead for nothing. Bound
    by launches, it costs the host the call and the device's last kernels, which nothing hides.
    """
    layers, kernel_ns, python_ns = (60, 100_000, 4_000) if gpu_bound else (60, 3_000, 15_000)
    recipe = Recipe("gpu" if gpu_bound else "launch", layers, kernel_ns, python_ns, items=(2.0,), spread=0.3)
    return program_of(recipe, random.Random(1))


def run(program: Program, remedy: str | None = None) -> Happened:
    """Runs a program, repaired or as it is."""
    repaired = Remedied(program.steps) if remedy is None else program.remedied(remedy)
    workers = None if program.loader is None or repaired.no_loader else Workers(*program.loader)
    return Happened(program, Host(workers).run(repaired.steps))
