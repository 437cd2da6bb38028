"""The Diagnosis as a whole, and its JSON (schema 1, see docs/diagnosis.schema.json)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.diagnosis.compiling import Compilation, WhatIf
from gpudoctor.diagnosis.counting import Counter
from gpudoctor.diagnosis.finding import Finding, NotMeasured, Passed
from gpudoctor.diagnosis.memory import Memory
from gpudoctor.diagnosis.run import Run
from gpudoctor.diagnosis.steps import Budget, CriticalPath, Replay, StepTime
from gpudoctor.diagnosis.work import GeneratedKernel, Timeline, Work
from gpudoctor.errors import InputError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything a report needs; a pure function of a Profile and a set of rules.

    `compilation` is null when nothing was compiled, or when that was not measured (`counters.graphs` is null then).
    `what_if` is null in scripts that compile, and when it was not measured.
    `replay` and `critical_path` are null when no profiled step has a dependency graph.
    `memory` is null without an allocator snapshot.
    `counters` has the counts alone; `counted` says how each came about, and on which lines.
    `generated` has the first kernels of the generated code; `generated_left_out` says how many more there are.
    `timeline` is for the page only: it is large, and null in JSON.
    """

    run: Run
    verdict: str = ""
    budget: Budget | None = None
    counters: dict[str, int | None] = field(default_factory=dict)
    counted: dict[str, Counter] = field(default_factory=dict)
    compilation: Compilation | None = None
    what_if: WhatIf | None = None
    replay: Replay | None = None
    critical_path: CriticalPath | None = None
    memory: Memory | None = None
    timeline: Timeline | None = None
    work: tuple[Work, ...] = ()
    generated: tuple[GeneratedKernel, ...] = ()
    generated_left_out: int = 0
    findings: tuple[Finding, ...] = ()
    not_measured: tuple[NotMeasured, ...] = ()
    passed: tuple[Passed, ...] = ()
    step_times: tuple[StepTime, ...] = ()
    schema: int = SCHEMA
    gpudoctor: str = ""

    @property
    def live(self) -> tuple[Finding, ...]:
        """Findings that count: not accepted."""
        return tuple(finding for finding in self.findings if finding.accepted is None)

    @property
    def roots(self) -> tuple[Finding, ...]:
        """Findings that count and that no other finding explains."""
        return tuple(finding for finding in self.live if finding.explained_by is None)

    @property
    def inconclusive(self) -> bool:
        """Nothing can be said: no step, compile log or snapshot was seen, or no rule could be judged."""
        if self.run.source == "snapshot":
            return self.memory is None
        return not (self.run.steps or self.run.stepless) or not (self.passed or self.findings)

    def explained(self, finding: Finding) -> tuple[Finding, ...]:
        """The findings that one explains, directly or through another of them, in their order."""
        below = {finding.fingerprint}
        found: list[Finding] = []
        while more := [other for other in self.live if other.explained_by in below and other not in found]:
            found += more
            below |= {other.fingerprint for other in more}
        return tuple(other for other in self.live if other in found)

    def __str__(self) -> str:
        """The report as it is printed in a terminal, without colours."""
        from gpudoctor.reporters import console

        return console.render(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from gpudoctor.reporters import notebook

        return notebook.render(self)


def without_source(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis without the user's source: no excerpts, no diffs, which quote it, and no code that was generated
    from it. Lines keep their numbers."""
    counted = {name: _unquoted(counter) for name, counter in diagnosis.counted.items()}
    generated = tuple(map(_without_code, diagnosis.generated))
    return replace(diagnosis, findings=tuple(map(_bare, diagnosis.findings)), counted=counted, generated=generated)


def _unquoted(counter: Counter) -> Counter:
    return replace(counter, lines=tuple(replace(at, text="") for at in counter.lines))


def _without_code(kernel: GeneratedKernel) -> GeneratedKernel:
    return replace(kernel, code=None, lines=tuple(replace(at, text="") for at in kernel.lines))


def _bare(finding: Finding) -> Finding:
    remedy = finding.remedy and replace(finding.remedy, diff=None, change=None)
    return replace(finding, excerpt=(), remedy=remedy)


def to_json(diagnosis: Diagnosis) -> str:
    """The Diagnosis as indented JSON text (schema 1), ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(replace(diagnosis, timeline=None)), indent=2).decode() + "\n"


def from_json(text: str | bytes, where: str = "diagnosis") -> Diagnosis:
    """Reads what `to_json` wrote.

    Raises:
        InputError: the text is not JSON, of another schema, or lacks what the schema asks for.
    """
    try:
        schema = msgspec.json.decode(text, type=dict[str, Any]).get("schema")
        if schema != SCHEMA:
            raise InputError(
                f"{where}: diagnosis schema {schema!r} is not {SCHEMA}; update gpudoctor or diagnose again"
            )
        return msgspec.json.decode(text, type=Diagnosis)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not a gpudoctor diagnosis ({error})") from None


def is_diagnosis(path: Path) -> bool:
    """Whether a file is a diagnosis: its JSON begins with the run."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(200).replace(b" ", b"").replace(b"\n", b"").startswith(b'{"run":')


def json_schema() -> dict[str, Any]:
    """JSON Schema of the Diagnosis, as published in docs/diagnosis.schema.json."""
    return msgspec.json.schema(Diagnosis)
