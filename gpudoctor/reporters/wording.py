"""The words that every format shares: places, savings, facts; and text made safe to show.

A recording holds what the user's files, arguments and error messages held, so any character may be in any string.
Nothing here escapes for a format (HTML does that itself); here is decided what a reader sees of a character that would
not show, or would change how its neighbours show.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from dataclasses import dataclass

from gpudoctor.diagnosis import (
    SEVERITIES,
    Budget,
    Diagnosis,
    Finding,
    Location,
    Memory,
    NotMeasured,
    Run,
    appliable,
    run_failed,
)
from gpudoctor.reporters import savings
from gpudoctor.units import format_bytes, format_count, format_ns, format_share, plural

NOT_MEASURED = "not measured"

BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that reorder the text around them: source code can lie with them (https://trojansource.codes)."""


_UNIT = re.compile(r"(?<=\d)[ \u202f](?=(?:%|[nµm]?s|B|[KMGT]iB)(?!\w)|\d{3}(?!\d))|(?<=[≤≈±<]) (?=\d)")
"""The spaces between a number and its unit, inside a long number, and between a sign and its number."""


def glued(text: str, glue: str = "\u00a0") -> str:
    """The text with `glue`, by default a no-break space, for every space that must not end a line."""
    return _UNIT.sub(glue, text)


def visible(text: str, keep: str = "") -> str:
    r"""The text with what cannot be seen written as an escape such as ``\x1b``; characters in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or not _hidden(c) else _escape(c) for c in text)


def one_line(text: str) -> str:
    """Text for one place in a sentence or table: white space collapsed, nothing hidden."""
    return visible(" ".join(text.split()))


def code_line(text: str) -> str:
    """One line of source: indentation and tabs stay, a line end that came with it goes."""
    return visible(text.rstrip("\r\n"), keep="\t")


def code_word(text: str) -> str:
    """A rule id or another name that stands inside a command: no white space at all."""
    return re.sub(r"\s+", "-", one_line(text))


def _hidden(char: str) -> bool:
    return char in BIDI or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def fixable(diagnosis: Diagnosis) -> str | None:
    """What `gpudoctor fix` can do about a run that was recorded here; None when it can do nothing."""
    if diagnosis.run.source != "run":
        return None
    number = sum(appliable(finding) for finding in diagnosis.findings)
    return f"`gpudoctor fix` can apply {plural(number, 'fix', 'fixes')}: it shows the diff" if number else None


def fix_command(run: Run, finding: Finding) -> str:
    """The command that shows a finding's certain change of a run that was recorded here; empty when there is none."""
    if run.source != "run" or not appliable(finding):
        return ""
    return f"gpudoctor fix --rule {code_word(finding.rule)} --dry-run"


def place(where: Location | None) -> str:
    """`train.py:17`, or an honest word when no line is known."""
    return one_line(str(where)) if where else "no line known"


def command(run: Run, *options: str) -> str:
    """A command line that checks the same run again, quoted for a shell."""
    target = "-m " + shlex.quote(run.script[3:]) if run.script.startswith("-m ") else shlex.quote(run.script)
    words = ["gpudoctor check" if run.source == "run" else "gpudoctor analyze", target, *options]
    if run.argv:
        words += ["--", *map(shlex.quote, run.argv)]
    return visible(" ".join(words))


_A_STEPLESS = {"log": "a compile log", "snapshot": "an allocator snapshot"}
_STEPLESS = {"log": "compile log", "snapshot": "allocator snapshot"}


def run_words(run: Run) -> tuple[str, ...]:
    """The facts of the run line after its script: device, torch, steps, a failure; what is unknown is left out."""
    words = (
        run.device,
        f"torch {run.torch}" if run.torch else None,
        plural(run.steps, "step") if run.steps else _STEPLESS.get(run.source, "no step seen"),
        f"the script {failed}" if (failed := run_failed(run)) else None,
    )
    return tuple(one_line(word) for word in words if word)


def script_words(run: Run) -> str:
    """The script and its arguments as a shell would take them."""
    return one_line(" ".join((run.script, *map(shlex.quote, run.argv))))


def verdict(diagnosis: Diagnosis) -> str:
    """The one sentence; when the diagnosis brings none, what can be said without it."""
    if diagnosis.verdict:
        return one_line(diagnosis.verdict)
    if not diagnosis.run.steps and not diagnosis.run.stepless:
        return "Inconclusive: no training step was seen."
    if diagnosis.run.step_ns is None:
        return "Inconclusive: no step could be timed."
    return f"A step takes {format_ns(diagnosis.run.step_ns)}."


def caveats(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What limits the numbers: what the run says of itself, and why no saving was simulated."""
    refused = diagnosis.replay.refused if diagnosis.replay else None
    return (*diagnosis.run.integrity, *([f"no saving was simulated: {refused}"] if refused else []))


def inconclusive(diagnosis: Diagnosis) -> str | None:
    """Why nothing can be said, for formats that are empty then; None when something can."""
    return f"inconclusive: {verdict(diagnosis).removeprefix('Inconclusive: ')}" if diagnosis.inconclusive else None


def budget_percentages(budget: Budget) -> tuple[str, ...]:
    """The shares in per cent with one decimal, rounded so that what is shown adds up to 100.0 (largest remainder).

    What rounds to nothing is `< 0.1 %`, as everywhere (`units.format_share`).
    """
    total = sum(share.ns for share in budget.shares)
    if total <= 0:
        return tuple("0 %" for _ in budget.shares)
    floors = [share.ns * 1000 // total for share in budget.shares]
    by_remainder = sorted(range(len(floors)), key=lambda i: -(budget.shares[i].ns * 1000 % total))
    for index in by_remainder[: 1000 - sum(floors)]:
        floors[index] += 1
    return tuple(
        f"{tenths // 10}.{tenths % 10} %" if tenths else "< 0.1 %" if share.ns else "0 %"
        for tenths, share in zip(floors, budget.shares, strict=True)
    )


def budget_source(budget: Budget) -> str:
    """Which step the budget shows, how long it took, and on which ruler."""
    how = _OBSERVED.get(budget.observation, "as recorded")
    return f"step {budget.step}, {format_ns(budget.step_ns)} on the {one_line(budget.ruler)}, {how}"


_OBSERVED: dict[str | None, str] = {"light": "light profiler", "detail": "detailed profiler"}


def budget_note(diagnosis: Diagnosis) -> str:
    """Why a share of the budget and the price of a finding about it differ; empty when there is no such price."""
    run, budget = diagnosis.run, diagnosis.budget
    if budget is None or not budget.shares or all(finding.saving is None for finding in diagnosis.roots):
        return ""
    others = "all profiled steps" if run.step_ns is None else "the unprofiled steps"
    return f"One profiled step; savings are of {others}, and may differ."


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Rules that share one reason for not being measured, and one way to change that."""

    rules: tuple[NotMeasured, ...]
    reason: str
    how: str


def unjudged(diagnosis: Diagnosis) -> tuple[Unjudged, ...]:
    """The rules not measured, grouped by what is missing, in the order of their first rule."""
    groups: dict[tuple[str, str], list[NotMeasured]] = {}
    for rule in diagnosis.not_measured:
        groups.setdefault((one_line(rule.reason), one_line(rule.how)), []).append(rule)
    return tuple(Unjudged(tuple(rules), reason, how) for (reason, how), rules in groups.items())


def count_by_severity(findings: tuple[Finding, ...]) -> str:
    """`1 error, 2 warnings, 1 info`; severities without a finding are left out."""
    counts = {severity: sum(f.severity == severity for f in findings) for severity in SEVERITIES}
    return ", ".join(plural(n, severity, "info" if severity == "info" else None) for severity, n in counts.items() if n)


def judged_rules(diagnosis: Diagnosis) -> set[str]:
    """Ids of the rules that were judged: they passed or found something."""
    return {passed.rule for passed in diagnosis.passed} | {finding.rule for finding in diagnosis.findings}


def nothing_found(diagnosis: Diagnosis) -> str:
    """What to say where findings would stand: rules that could not be judged are not rules that found nothing."""
    judged = judged_rules(diagnosis)
    if not judged:
        return "No rule could be judged on this run, so nothing can be said."
    but = f" {plural(len(diagnosis.not_measured), 'rule')} could not be judged." if diagnosis.not_measured else ""
    return f"Nothing found on the {plural(len(judged), 'rule')} judged.{but}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One of the headline numbers: what it is, its value, and a note that makes it readable."""

    label: str
    value: str
    note: str = ""
    known: bool = True


def facts(diagnosis: Diagnosis) -> tuple[Fact, ...]:
    """The five headline facts, always in this order; a missing one says so and never reads as zero."""
    run = diagnosis.run
    if run.source == "snapshot":
        return (*_memory_facts(diagnosis.memory), _found(diagnosis))
    return (_step_time(run), _largest_saving(diagnosis), _breaks(diagnosis), _found(diagnosis), _overhead(run))


def _memory_facts(memory: Memory | None) -> tuple[Fact, ...]:
    """Four facts of the GPU that holds most."""
    if memory is None or not memory.devices:
        return (Fact("Reserved", "0 B", "the snapshot has no segments"),)
    most = max(memory.devices, key=lambda device: device.reserved_bytes)
    on = f"GPU {most.device} of {len(memory.devices)}" if len(memory.devices) > 1 else "held from the driver"
    peak = Fact("Peak", NOT_MEASURED, "no history was recorded", known=False)
    if most.peak_bytes is not None:
        peak = Fact("Peak", format_bytes(most.peak_bytes), "most that tensors took in the recorded history")
    kept = format_share(most.inactive_split_bytes / most.reserved_bytes) if most.reserved_bytes else "none"
    return (
        Fact("Reserved", format_bytes(most.reserved_bytes), on),
        Fact("Allocated", format_bytes(most.allocated_bytes), "in tensors when the snapshot was taken"),
        peak,
        Fact("Free but kept", format_bytes(most.inactive_split_bytes), f"{kept} of the reserved, in segments in use"),
    )


def _step_time(run: Run) -> Fact:
    if run.step_ns is None and run.profiled_step_ns is not None:
        note = f"median of {plural(run.steps, 'profiled step')}; none was seen without the profiler"
        return Fact("Profiled step", format_ns(run.profiled_step_ns), note)
    if run.step_ns is None:
        why = f"{_A_STEPLESS[run.source]} has none" if run.stepless else "no steady step without the profiler"
        return Fact("Step time", NOT_MEASURED, why, known=False)
    steps = plural(run.step_count, "unprofiled step")
    spread = f"± {format_ns(run.step_spread_ns)}, " if run.step_spread_ns is not None else ""
    return Fact("Step time", format_ns(run.step_ns), f"{spread}median of {steps}")


def _largest_saving(diagnosis: Diagnosis) -> Fact:
    """Savings are not added up: two findings may own the same nanoseconds once one of them is fixed."""
    label = "Largest single saving"
    priced = [(f.saving, f) for f in diagnosis.roots if f.saving is not None and f.saving.of_time]
    if not priced:
        why = "no finding could be priced" if diagnosis.live else "no finding to price"
        return Fact(label, "none", why, known=False)
    saving, finding = max(priced, key=lambda pair: pair[0].ns_per_step)
    amount = savings.time(saving).removesuffix("/step")
    return Fact(label, amount, ", ".join(filter(None, (savings.share(saving), one_line(finding.rule), saving.grade))))


def _breaks(diagnosis: Diagnosis) -> Fact:
    breaks, recompiles = diagnosis.counters.get("graph_breaks"), diagnosis.counters.get("recompiles")
    if breaks is None and recompiles is None:
        why = "nothing was compiled" if diagnosis.run.source == "log" else "no compile log"
        return Fact("Graph breaks", NOT_MEASURED, why, known=False)
    note = f"recompiles {NOT_MEASURED}" if recompiles is None else plural(recompiles, "recompile")
    if breaks is None:
        return Fact("Graph breaks", NOT_MEASURED, note, known=False)
    return Fact("Graph breaks", format_count(breaks), note)


def _found(diagnosis: Diagnosis) -> Fact:
    if not judged_rules(diagnosis):
        return Fact("Findings", NOT_MEASURED, "no rule could be judged", known=False)
    live = diagnosis.live
    note = count_by_severity(live) or f"{plural(len(diagnosis.passed), 'rule')} passed"
    return Fact("Findings", format_count(len(live)), note)


def _overhead(run: Run) -> Fact:
    if not run.step_ns or run.profiled_step_ns is None:
        return Fact("Profiler overhead", NOT_MEASURED, "needs bare and profiled steps", known=False)
    ratio = run.profiled_step_ns / run.step_ns - 1
    share = format_share(ratio)
    value = "none" if ratio < 0 else share if share.startswith("<") else f"+{share}"
    return Fact("Profiler overhead", value, f"{format_ns(run.profiled_step_ns)} a step, light profiler")
