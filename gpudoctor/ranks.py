"""Diagnoses of several recordings or traces of one job, each by itself, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gpudoctor.config import Config
from gpudoctor.diagnosis import Diagnosis
from gpudoctor.errors import GpuDoctorError, InputError
from gpudoctor.ingest.ranks import Input, assigned

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RankDiagnosis:
    """One rank's diagnosis.

    Attributes:
        rank: from the trace itself, else from the file's name, else from the order.
        path: the file or folder, as it was found.
        diagnosis: schema 1 of docs/diagnosis.schema.json.
    """

    rank: int
    path: str
    diagnosis: Diagnosis

    @property
    def step_ns(self) -> int | None:
        """Its step time: of unprofiled steps where there are any."""
        run = self.diagnosis.run
        return run.step_ns if run.step_ns is not None else run.profiled_step_ns


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An input that could not be diagnosed.

    Attributes:
        path: the file or folder.
        reason: why.
        certain: it is meant as a trace; when not, it lay beside traces and is something else.
    """

    path: str
    reason: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Ranks:
    """All diagnoses, by rank.

    Attributes:
        ranks: what could be diagnosed.
        slowest: index in `ranks` of the one with the longest step.
        left_out: what could not.
        schema: version of this shape.
    """

    ranks: tuple[RankDiagnosis, ...]
    slowest: int
    left_out: tuple[LeftOut, ...] = ()
    schema: int = SCHEMA

    @property
    def shown(self) -> RankDiagnosis:
        """The one to read first: the slowest, the lowest rank of equals."""
        return self.ranks[self.slowest]


def diagnose_all(inputs: Sequence[Input], config: Config, jobs: int = 1) -> Ranks:
    """Diagnoses every input, one after the other or in several processes.

    Raises:
        InputError: none of them can be read.
        RuleError: a rule is wrong.
        UsageError: the configuration names a rule that does not exist.
    """
    made = _run(inputs, config, jobs)
    left = tuple(
        LeftOut(str(one.path), outcome, one.certain)
        for one, (_, outcome) in zip(inputs, made, strict=True)
        if isinstance(outcome, str)
    )
    read = [
        (one, rank, outcome)
        for one, (rank, outcome) in zip(inputs, made, strict=True)
        if isinstance(outcome, Diagnosis)
    ]
    if not read:
        first = next((one for one in left if one.certain), left[0])
        raise InputError(f"none of {len(inputs)} files can be read; the first: {first.reason}")
    numbers = assigned([one.named if rank is None else rank for one, rank, _ in read])
    ranks = [RankDiagnosis(n, str(one.path), d) for n, (one, _, d) in zip(numbers, read, strict=True)]
    ranks.sort(key=lambda rank: rank.rank)
    slowest = max(range(len(ranks)), key=lambda number: (ranks[number].step_ns or 0, -number))
    return Ranks(tuple(ranks), slowest, left)


def to_json(ranks: Ranks) -> str:
    """All of it as indented JSON that ends in a newline; each `diagnosis` is schema 1."""
    return msgspec.json.format(msgspec.json.encode(ranks), indent=2).decode() + "\n"


def _run(inputs: Sequence[Input], config: Config, jobs: int) -> list[tuple[int | None, Diagnosis | str]]:
    if min(jobs, len(inputs)) == 1:
        return [_one(one, config) for one in inputs]
    import joblib

    return list(joblib.Parallel(n_jobs=min(jobs, len(inputs)))(joblib.delayed(_one)(one, config) for one in inputs))


def _one(one: Input, config: Config) -> tuple[int | None, Diagnosis | str]:
    """The rank that an input says it is, and its diagnosis, or why there is none."""
    from gpudoctor.diagnose import diagnose
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.ingest import open_path

    rules = load_rules(config.rule_dirs)
    try:
        profile = open_path(one.path)
    except GpuDoctorError as error:
        return None, str(error)
    rank = profile.facts.get("rank")
    return rank if isinstance(rank, int) else None, diagnose(profile, rules, config)
