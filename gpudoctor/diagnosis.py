"""The Diagnosis: what was found, as frozen data, and its JSON (schema 1, see docs/diagnosis.schema.json)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from gpudoctor.errors import InputError

SCHEMA = 1
COMPILE_TIME = "compile time spread"
"""How the basis of a saving begins that lies outside the steady step: time that compiling added to some steps."""
Severity = Literal["error", "warning", "info"]
Grade = Literal["measured", "simulated", "estimated"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's code.

    Attributes:
        file: path relative to the run's working folder when inside it, else absolute.
        line: 1-based line.
        precision: "call" (this very line called it) or "def" (only the function is known).
        function: enclosing function, null at module level or when unknown.
        module: path or class of the nn.Module that ran it.
        role: what the place is to the finding, e.g. "break", "caller", "torch.compile", "DataLoader".
    """

    file: str
    line: int
    precision: str = "call"
    function: str | None = None
    module: str | None = None
    role: str | None = None

    def __str__(self) -> str:
        between = " line " if self.file.startswith("cell ") else ":"  # a notebook's cell
        return f"{self.file}{between}{self.line}"


@dataclass(frozen=True, slots=True)
class Saving:
    """What a fix is worth in nanoseconds a step, with its grade: an upper bound, or what a model says.

    Attributes:
        ns_per_step: what a fix saves in a step: replayed without it, or the time that the finding owns.
        share: the same as a share (0 to 1) of the step time.
        grade: measured, simulated or estimated; no grade, no number.
        basis: how the number came about, one phrase; one that begins with "model" makes no upper bound.
        low_ns: least that it saves when what the replay had to guess is varied; null when nothing was replayed.
        high_ns: most that it saves; null likewise.
        adds_ns: what it still saves once the findings above it are fixed; null likewise.
        memory_bytes: device memory that a fix gives back at the peak; null when that is not what it saves.
        compile_ns: compile time of the whole run that a fix takes away; null likewise.
    """

    ns_per_step: int
    share: float
    grade: Grade = "estimated"
    basis: str = "upper bound: the time the finding owns"
    low_ns: int | None = None
    high_ns: int | None = None
    adds_ns: int | None = None
    memory_bytes: int | None = None
    compile_ns: int | None = None

    @property
    def of_time(self) -> bool:
        """Whether it is time of the steps, and not only memory or compile time."""
        return self.ns_per_step > 0 or (self.memory_bytes is None and self.compile_ns is None)

    @property
    def of_compiling(self) -> bool:
        """Whether it is time that compiling adds to some steps, and so no part of a steady step."""
        return self.basis.startswith(COMPILE_TIME)

    @property
    def is_bound(self) -> bool:
        """Whether no fix can save more; a model's number may be off in both directions, a measured one is neither."""
        return self.grade != "measured" and not self.basis.startswith("model")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A small table of what was measured: column titles (unit included) and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """How a remedy's diff is made, so that `gpudoctor fix` can make it again beside others.

    Attributes:
        kind: kind of edit, e.g. "keywords" (docs/rules.md lists them).
        file: the file, relative to the run's working folder.
        line: 1-based line that the edit is about.
        values: what the kind's keys hold.
        sha256: of the file's text as it was recorded, in UTF-8.
        also: further lines that the same edit is made on.
    """

    kind: str
    file: str
    line: int
    values: dict[str, str | int | tuple[str, ...] | dict[str, str]]
    sha256: str
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that helps.

    Attributes:
        name: its name in the rule.
        text: what to do, Markdown.
        diff: unified diff against the user's file; null where the change is not certain.
        risk: numerics, memory, reproducibility; null when none is known.
        change: how the diff is made; null without one.
    """

    name: str
    text: str
    diff: str | None = None
    risk: str | None = None
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of an excerpt."""

    number: int
    text: str
    culprit: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem in this run, on one line of the user's code.

    Attributes:
        rule: rule id, e.g. GD101.
        name: rule name, e.g. graph-break.
        title: the rule's title, a sentence.
        severity: error (≥ 20 % of the step), warning (≥ 3 %), info; the rule's default where only counts are known.
        message: the claim with its number, one or two sentences.
        where: the line to look at.
        locations: other places that belong to it, most telling first.
        count: how often it happened (in the unit the message gives).
        saving: what a fix is worth; null when it cannot be priced.
        evidence: what was measured.
        remedy: what to do.
        excerpt: source lines around `where`.
        fingerprint: stable over line moves and measured values.
        explained_by: fingerprint of the finding that is its cause; null when it stands for itself.
        because: why that one is its cause.
        children: fingerprints of the findings that this one explains.
        accepted: why it does not count (suppression or stated intent); null when it counts.
        when_wrong: when the rule misleads.
    """

    rule: str
    name: str
    title: str
    severity: Severity
    message: str
    where: Location | None = None
    locations: tuple[Location, ...] = ()
    count: int | None = None
    saving: Saving | None = None
    evidence: tuple[Evidence, ...] = ()
    remedy: Remedy | None = None
    excerpt: tuple[SourceLine, ...] = ()
    fingerprint: str = ""
    explained_by: str | None = None
    because: str | None = None
    children: tuple[str, ...] = ()
    accepted: str | None = None
    when_wrong: str | None = None

    @property
    def replayed(self) -> bool:
        """Whether its fix is one of those that were replayed together."""
        return self.saving is not None and self.saving.adds_ns is not None


def run_failed(run: Run) -> str | None:
    """How the script failed, e.g. `failed with exit code 1`; None when it did not, or was stopped."""
    if not run.script_exit:
        return None
    code = run.script_exit
    return f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"


def appliable(finding: Finding) -> bool:
    """Whether a finding counts and its remedy is a change that `gpudoctor fix` can make."""
    return finding.accepted is None and finding.remedy is not None and finding.remedy.change is not None


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A rule that could not be judged: why, and how to get what it needs. Never the same as passed."""

    rule: str
    name: str
    reason: str
    how: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A rule that was judged on this run and found nothing."""

    rule: str
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """One owner's time in the budget step."""

    owner: str
    ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Budget:
    """Where one step's time goes. The shares add up to `step_ns` exactly.

    Attributes:
        step: number of the step (the median of those that have a budget).
        step_ns: its time under the profiler.
        ruler: what was measured: "main thread" or "device".
        shares: owners, largest first.
        observation: how the step was profiled, "light" or "detail"; None when another recorded it.
    """

    step: int
    step_ns: int
    ruler: str
    shares: tuple[BudgetShare, ...]
    observation: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """How well the dependency graph of the profiled steps gives their times back, and what all fixes save together.

    Attributes:
        steps: steps replayed.
        error: median over the steps of |replayed / measured - 1|, with the trace's constants.
        worst_error: largest of them.
        opaque_share: share of the critical path that is waiting which nothing explains.
        refused: why no saving was simulated, a sentence; null when savings were.
        together: what all findings' fixes save when they are replayed at once; null when none was simulated.
    """

    steps: int
    error: float
    worst_error: float
    opaque_share: float
    refused: str | None = None
    together: Saving | None = None


@dataclass(frozen=True, slots=True)
class PathShare:
    """What one owner has of the critical path.

    Attributes:
        kind: host, call, device, latency or wait, as in the table `critical_path`.
        name: operator, runtime call or kernel class; null for Python between operators.
        where: the user's line; null when unknown.
        stream: stream id, for device work and launch latency.
        ns: its time on the path.
        share: the same as a share of the step.
    """

    kind: str
    name: str | None
    where: Location | None
    stream: int | None
    ns: int
    share: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What the time of the median profiled step hangs on.

    Attributes:
        step: number of the step.
        step_ns: its time under the profiler.
        shares: owners, largest first; they add up to the step.
    """

    step: int
    step_ns: int
    shares: tuple[PathShare, ...]


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """What one line holds of a device's memory.

    Attributes:
        device: GPU index.
        category: parameters, gradients, optimizer state, activations, inputs, temporaries, workspaces or other.
        where: the user's line that asked for it; null when none is known.
        bytes: bytes it holds.
        count: in so many allocations; of kept segments, how many it keeps.
        share: of the peak (0 to 1); of kept segments, of the reserved memory.
        without_bytes: the peak if the line allocated none of it; null where that was not worked out.
        free_bytes: of kept segments, what is free in them and cannot be given back.
    """

    device: int
    category: str | None
    where: Location | None
    bytes: int
    count: int
    share: float
    without_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A GPU's caching allocator at the end of what was recorded.

    Attributes:
        device: GPU index.
        reserved_bytes: memory held from the driver.
        allocated_bytes: in blocks that tensors hold.
        cached_bytes: in segments that are free as a whole; `empty_cache()` would give them back.
        inactive_split_bytes: free, in segments that something alive keeps.
        largest_free_bytes: largest free block.
        peak_bytes: most that was allocated at once in the recorded history; null without one.
        capacity_bytes: the device's memory; null where not known.
        oom_bytes: what the last request that failed asked for; null when none failed.
        oom_where: the user's line whose request failed.
    """

    device: int
    reserved_bytes: int
    allocated_bytes: int
    cached_bytes: int
    inactive_split_bytes: int
    largest_free_bytes: int
    peak_bytes: int | None = None
    capacity_bytes: int | None = None
    oom_bytes: int | None = None
    oom_where: Location | None = None


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """Segments of a device that look alike.

    Attributes:
        device: GPU index.
        bytes: size of each.
        live_bytes: what tensors hold of each.
        count: how many look so.
        fill: a digit for each of equal stretches, from its first byte to its last: tenths of it in use, rounded up.
    """

    device: int
    bytes: int
    live_bytes: int
    count: int
    fill: str


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory in use on a device at a moment of the recorded history, ns from its first entry."""

    device: int
    time_ns: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class AllocatorReplay:
    """What a model of the caching allocator says of the recorded allocations under other settings: an estimate.

    Attributes:
        device: GPU index.
        setting: the setting as `PYTORCH_CUDA_ALLOC_CONF` takes it; empty for the recorded one.
        peak_reserved_bytes: most that would be reserved.
        reserved_bytes: reserved at the end.
        retries: allocations for which the cache would be emptied first; null where the device's memory is not known.
        ooms: requests that would fail; null likewise.
    """

    device: int
    setting: str
    peak_reserved_bytes: int
    reserved_bytes: int
    retries: int | None = None
    ooms: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What holds the GPUs' memory.

    Attributes:
        devices: by GPU index.
        peak: lines by what they held when most was allocated, largest first.
        kept: lines by the free memory in segments that they keep from being given back, largest first.
        replays: predictions under other allocator settings.
        segments: what is in use of the segments, the ones with most free memory first.
        curve: memory in use over the recorded history; each reading is the most since the one before.
        inferred: the categories follow from stacks and lifetimes, not from the run's own objects.
        history: allocations were recorded; without, `peak` is what there was at the end.
    """

    devices: tuple[DeviceMemory, ...]
    peak: tuple[MemoryShare, ...] = ()
    kept: tuple[MemoryShare, ...] = ()
    replays: tuple[AllocatorReplay, ...] = ()
    segments: tuple[SegmentUse, ...] = ()
    curve: tuple[MemoryReading, ...] = ()
    inferred: bool = True
    history: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """What takes most of the profiled steps: kernels of one name, or on a CPU operators of one name.

    Attributes:
        name: kernel or operator.
        kind: its class: gemm, convolution, pointwise, copy, …
        per_step: calls a step.
        ns_per_step: its time a step under the profiler; of operators without what they call.
        share: the same as a share of all such time.
        where: the user's line that has most of it; null when none is known.
    """

    name: str
    kind: str | None
    per_step: float
    ns_per_step: int
    share: float
    where: Location | None = None


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A kernel that Inductor made, beside the lines it was made of.

    Attributes:
        name: its name in the generated code.
        kind: cpp, triton or what else Inductor calls it.
        direction: forward or backward.
        ops: operators that it fuses.
        lines: the user's lines, as `file:line`.
        bytes: what it loads and stores; null where sizes are not known.
        ns_per_call: time of a call; null where it was not measured.
    """

    name: str
    kind: str | None
    direction: str | None
    ops: str | None
    lines: tuple[str, ...] = ()
    bytes: int | None = None
    ns_per_call: int | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """One band of the timeline.

    Attributes:
        name: thread, stream, or what its stretches are.
        kind: phases, thread, stream or idle.
        rows: how deep its events are nested.
    """

    name: str
    kind: Literal["phases", "thread", "stream", "idle"]
    rows: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The median profiled step as it ran, packed for the report's page.

    Attributes:
        step: number of the step.
        step_ns: its time under the profiler.
        unit_ns: nanoseconds that one unit of the columns is.
        lanes: bands, from top to bottom.
        names: names of events.
        kinds: what events are (phase, class, owner of idle time).
        places: the user's lines as `file:line`.
        events: how many there are.
        left_out: short events that were left out of a step with too many.
        columns: base64 of the deflated columns, little-endian, one behind the other: start and length (32 bits, in
            units), name and place (32 bits, place 0 is none and 1 the first), lane, row and kind (8 bits each). Events
            are sorted by lane, row and start.
        memory: memory in use, as (units from the step's begin, bytes).
    """

    step: int
    step_ns: int
    unit_ns: int
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    places: tuple[str, ...]
    events: int
    columns: str
    left_out: int = 0
    memory: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Break:
    """A graph break on one line of a compiled function.

    Attributes:
        where: the user's line; null when it cannot be tied to one.
        reason: Dynamo's reason, one line.
        break_id: id in Dynamo's registry of breaks, e.g. GB0124.
        count: how often it was logged.
        skipped: all of the function runs eagerly because of it.
    """

    where: Location | None
    reason: str | None
    break_id: str | None = None
    count: int = 1
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class CompiledFrame:
    """A function, or what follows a graph break in it, as Dynamo compiled it.

    Attributes:
        function: the function's name.
        where: its first line; for a continuation the line at which it goes on.
        resumes: it goes on after a graph break.
        versions: compilations of it that gave code.
        graphs: how many of them hold a graph.
        operators: operators in the graph of the last version; null without a graph.
        guards: guards of the last version.
        kernels: kernels that Inductor made of that graph, forward and backward; null with another backend.
        library_calls: library kernels and fallbacks that it calls beside them; null likewise.
        compile_ns: time spent compiling it, its backward graphs included.
        limit: it reached the recompile limit.
        breaks: graph breaks in it, in order of lines.
    """

    function: str
    where: Location | None
    resumes: bool = False
    versions: int = 0
    graphs: int = 0
    operators: int | None = None
    guards: int | None = None
    kernels: int | None = None
    library_calls: int | None = None
    compile_ns: int = 0
    limit: bool = False
    breaks: tuple[Break, ...] = ()


@dataclass(frozen=True, slots=True)
class Compilation:
    """What torch.compile did over the whole run.

    Attributes:
        graphs: graphs compiled, each version of each frame.
        graph_breaks: breaks logged.
        recompiles: recompilations, without those refused at the recompile limit.
        compile_ns: time spent compiling.
        dynamo_ns: of which tracing (Dynamo).
        backend_ns: of which in the backend (AOTAutograd, Inductor).
        backward_ns: of which backward graphs that were compiled later.
        steady_ns: compile time after warm-up; null when no step was seen.
        cache_hits: look-ups that found Inductor's or AOTAutograd's work in a cache; null when none was logged.
        cache_misses: look-ups that did not; null likewise.
        frames: what was compiled, each function followed by its continuations.
    """

    graphs: int
    graph_breaks: int
    recompiles: int
    compile_ns: int
    dynamo_ns: int
    backend_ns: int
    backward_ns: int
    steady_ns: int | None = None
    cache_hits: int | None = None
    cache_misses: int | None = None
    frames: tuple[CompiledFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What torch.compile would make of the model of a script that compiles nothing: traced once, after the run.

    Attributes:
        module: class of the module that was traced.
        where: the line that calls it.
        graphs: graphs its forward would become.
        operators: operators in them.
        guards: guards on the code.
        seconds: how long the tracing took.
        breaks: graph breaks in it.
        eager_kernels: operators that compute; null unless Inductor was asked for (`--what-if=inductor`).
        kernels: kernels that Inductor makes of them; null likewise.
        library_calls: library kernels that stay; null likewise.
    """

    module: str
    where: Location | None
    graphs: int
    operators: int
    guards: int | None = None
    seconds: float | None = None
    breaks: tuple[Break, ...] = ()
    eager_kernels: int | None = None
    kernels: int | None = None
    library_calls: int | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step's time for the step chart."""

    step: int
    ns: int
    observation: str
    warmup: bool
    compile_ns: int


@dataclass(frozen=True, slots=True)
class Run:
    """What was run and how it was watched.

    Attributes:
        script: script or module, as given.
        argv: its arguments.
        torch: torch version.
        device: device the step used, e.g. "CPU" or a GPU's name.
        started: ISO 8601 time with offset.
        steps: steps seen.
        step_source: what ended a step (optimizer, …).
        step_ns: median time of an unprofiled steady step; null when there was none.
        step_spread_ns: median absolute deviation of those; null below 3 steps.
        step_count: steady unprofiled steps behind step_ns.
        profiled_step_ns: median time of a lightly profiled step.
        source: a run that gpudoctor recorded, a trace that somebody else did, or what has no steps: a compile log, an
            allocator snapshot.
        predicted_step_ns: what the profiled steps predict without the profiler, its cost per event taken off.
        stopped: why the observation ended, one phrase.
        script_exit: the script's own exit code; null when gpudoctor stopped it.
        integrity: what limits the verdicts, a sentence each.
        environment: versions and machine facts by name.
    """

    script: str
    argv: tuple[str, ...] = ()
    torch: str | None = None
    device: str | None = None
    started: str | None = None
    steps: int = 0
    step_source: str | None = None
    step_ns: int | None = None
    step_spread_ns: int | None = None
    step_count: int = 0
    profiled_step_ns: int | None = None
    predicted_step_ns: int | None = None
    source: Literal["run", "trace", "log", "snapshot"] = "run"
    stopped: str | None = None
    script_exit: int | None = None
    integrity: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def stepless(self) -> bool:
        """Whether what was read has no steps by its nature."""
        return self.source in ("log", "snapshot")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything a report needs; a pure function of a Profile and a set of rules.

    `compilation` is null when nothing was compiled, or when that was not measured (`counters.graphs` is null then).
    `what_if` is null in scripts that compile, and when it was not measured.
    `replay` and `critical_path` are null when no profiled step has a dependency graph.
    `memory` is null without an allocator snapshot.
    `timeline` is for the page only: it is large, and null in JSON.
    """

    run: Run
    verdict: str = ""
    budget: Budget | None = None
    counters: dict[str, int | None] = field(default_factory=dict)
    compilation: Compilation | None = None
    what_if: WhatIf | None = None
    replay: Replay | None = None
    critical_path: CriticalPath | None = None
    memory: Memory | None = None
    timeline: Timeline | None = None
    work: tuple[Work, ...] = ()
    generated: tuple[GeneratedKernel, ...] = ()
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
    """The diagnosis without the user's source: no excerpts, and no diffs, which quote it. Lines keep their numbers."""
    return replace(diagnosis, findings=tuple(map(_bare, diagnosis.findings)))


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


def json_schema() -> dict[str, Any]:
    """JSON Schema of the Diagnosis, as published in docs/diagnosis.schema.json."""
    return msgspec.json.schema(Diagnosis)
