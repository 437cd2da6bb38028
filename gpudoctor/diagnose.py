"""Profile → Diagnosis: runs the rules and puts the run's facts, budget, counters and verdict beside their findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import gpudoctor
from gpudoctor.batch import batch
from gpudoctor.compilation import compilation, what_if
from gpudoctor.config import Config, suggestion
from gpudoctor.counting.counters import counters, values
from gpudoctor.critical_path import critical_path
from gpudoctor.diagnosis import (
    COMPILE_TIME,
    Budget,
    BudgetShare,
    Diagnosis,
    Finding,
    NotMeasured,
    Run,
    Saving,
    StepTime,
    run_failed,
)
from gpudoctor.engine.finding import severity_of
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.run import Outcome
from gpudoctor.engine.run import diagnose as run_rules
from gpudoctor.engine.suppression import unknown_names
from gpudoctor.generated_code import generated
from gpudoctor.memory import memory
from gpudoctor.profile import Profile
from gpudoctor.timeline import timeline
from gpudoctor.top_work import work
from gpudoctor.units import format_ns, format_share, plural
from gpudoctor.verdict import compiled, verdict

MAX_STEP_TIMES = 2000
"""Steps kept for the chart: the first ones; more would make the page large and the bars thinner than a pixel."""


def diagnose(profile: Profile, rules: Sequence[Rule], config: Config | None = None) -> Diagnosis:
    """Judges a profile.

    Args:
        profile: tables, facts and sources of one process.
        rules: the rules to run.
        config: selection, thresholds, preview.

    Raises:
        RuleError: a rule is wrong.
        UsageError: the configuration names a rule that does not exist.
    """
    run = _run(profile)
    outcome = run_rules(profile, rules, run=run, config=config)
    if not run.steps and not run.stepless:  # silence about a step that was not seen is no pass
        outcome = _without_steps(outcome, run)
    failed = run_failed(run)
    said = ([f"the script {failed}; this is what was seen until then"] if failed else []) + _misnamed(profile, rules)
    run = replace(run, integrity=(*run.integrity, *said))
    shaky = _unstable(run) or _crowded(profile)
    findings = outcome.findings
    if shaky is not None:
        run = replace(run, integrity=(*run.integrity, shaky))
        findings = tuple(map(_at_most_warning, findings))
    if config is not None and config.total_steps is not None:
        by_id = {rule.id: rule for rule in rules}
        findings = tuple(_over(finding, by_id[finding.rule], run, config.total_steps) for finding in findings)
    held = memory(profile)
    counted = counters(profile)
    kernels, kernels_left_out = generated(profile)
    judged = len(outcome.passed) + len({finding.rule for finding in findings})
    return Diagnosis(
        run=run,
        verdict=verdict(run, findings, judged, compiled(profile), outcome.replay, held),
        budget=_budget(profile),
        counters=values(counted),
        counted=counted,
        compilation=compilation(profile),
        what_if=what_if(profile),
        replay=outcome.replay,
        critical_path=critical_path(profile),
        memory=held,
        timeline=timeline(profile),
        work=work(profile),
        generated=kernels,
        generated_left_out=kernels_left_out,
        findings=findings,
        not_measured=outcome.not_measured,
        passed=outcome.passed,
        step_times=_step_times(profile),
        gpudoctor=gpudoctor.__version__,
    )


MAX_SPREAD = 0.25
"""Median deviation of the unprofiled steps, as a share of their median, beyond which their times say little: a quiet
machine shows 1 to 5 %, another busy process 20 % and more."""

PROFILED_RANGE = (0.67, 4.0)
"""Lightly profiled step over unprofiled step. Below, something else slowed the unprofiled ones; above, the profiled
ones: a light profiler adds up to its own length to a step of half a millisecond, and less to longer ones."""


def _at_most_warning(finding: Finding) -> Finding:
    """An error becomes a warning where it rests on step times; how long compiling took does not."""
    if finding.severity != "error" or finding.saving is None or finding.saving.of_compiling:
        return finding
    return replace(finding, severity="warning")


def _over(finding: Finding, rule: Rule, run: Run, total: int) -> Finding:
    """A finding on compile time that ends some day, with its cost spread over the whole training."""
    saving = finding.saving
    if saving is None or not run.step_ns or total <= run.steps or not saving.of_compiling:
        return finding
    if not saving.basis.endswith("steps seen"):  # it goes on in the steady state
        return finding
    ns = round(saving.ns_per_step * run.steps / total)
    basis = f"{COMPILE_TIME} over the {total:,} steps of the training, if nothing new comes after those seen"
    spread = Saving(ns, ns / (run.step_ns + ns), saving.grade, basis)
    return replace(finding, saving=spread, severity=severity_of(rule, None, spread))


def _unstable(run: Run) -> str | None:
    """Why the times of this run are not to be trusted; None when they are."""
    if run.step_ns is None or run.step_ns == 0:
        return None
    spread = (run.step_spread_ns or 0) / run.step_ns
    if spread > MAX_SPREAD:
        said = f"unprofiled steps differ by {format_share(spread)} of their median"
    elif run.profiled_step_ns is not None and not (
        PROFILED_RANGE[0] <= run.profiled_step_ns / run.step_ns <= PROFILED_RANGE[1]
    ):
        said = f"a step takes {format_ns(run.step_ns)}, but {format_ns(run.profiled_step_ns)} under the light profiler"
    else:
        return None
    return (
        f"the timing is unstable ({said}): other work on the machine, or steps that differ; check again before acting"
    )


MIN_DELAY_SHARE = 0.2
"""Share of the watched time in which the main thread was ready to run and had no core: 0 to 3 % on a quiet machine."""

MAX_CORE_SHARE = 0.67
"""Time on a core over time on a core or ready for one, below which step times are those of the machine's other work:
beside one other process on its core a thread gets a half."""


def _crowded(profile: Profile) -> str | None:
    """What to say of a main thread that had to share its core; None when it had not, or that is not known."""
    readings = {str(row["name"]): row["value"] for row in profile.rows("host") if row["device"] is None}
    wall, cpu, delay = (readings.get(name) for name in ("wall_ns", "main_thread_cpu_ns", "main_thread_delay_ns"))
    if not wall or cpu is None or not delay:
        return None
    got = cpu / (cpu + delay)
    if delay < MIN_DELAY_SHARE * wall or got >= MAX_CORE_SHARE:
        return None
    return (
        f"the timing is unstable (the main thread got {format_share(got)} of a core when it was ready to run): other "
        "work on the machine, a limit on CPU time, or more threads and workers than cores slow the times; check again "
        "before acting"
    )


def _without_steps(outcome: Outcome, run: Run) -> Outcome:
    """One reason for all rules that found nothing: what else each would have needed comes after a step."""
    how = "let the script reach its training loop; `gpudoctor check --run-to-end` never stops it early"
    if run.source == "trace":
        how = "record the run with `gpudoctor check train.py`, or a trace with `ProfilerStep` marks"
    names = {rule.rule: rule.name for rule in outcome.not_measured} | {rule.rule: rule.name for rule in outcome.passed}
    unseen = [NotMeasured(rule, name, "no training step was seen", how) for rule, name in sorted(names.items())]
    return Outcome(outcome.findings, tuple(unseen), ())


def _misnamed(profile: Profile, rules: Sequence[Rule]) -> list[str]:
    """A note on comments that excuse a rule which does not exist: the finding still counts, and the reader wonders."""
    known = [name for rule in rules for name in (rule.id, rule.name)]
    found = unknown_names(profile.sources, known)
    if not found:
        return []
    file, line, word = found[0]
    more = f" (and {plural(len(found) - 1, 'more such name')})" if len(found) > 1 else ""
    return [f"{file}:{line}: `gpudoctor: ignore[{word}]` names no rule{suggestion(word, known)}{more}"]


def _run(profile: Profile) -> Run:
    facts = profile.facts
    return Run(
        script=str(facts.get("script", "?")),
        argv=tuple(map(str, facts.get("argv", ()))),
        torch=facts.get("torch"),
        device=facts.get("device"),
        started=facts.get("started"),
        steps=int(facts.get("steps", 0)),
        step_source=facts.get("step_source"),
        step_ns=facts.get("step_ns"),
        step_spread_ns=facts.get("step_spread_ns"),
        step_count=int(facts.get("step_count", 0)),
        profiled_step_ns=facts.get("profiled_step_ns"),
        predicted_step_ns=facts.get("predicted_step_ns"),
        batch=batch(profile),
        source=next((kind for kind in ("trace", "log", "snapshot") if kind in facts), "run"),
        stopped=facts.get("stopped"),
        script_exit=facts.get("script_exit"),
        integrity=tuple(facts.get("notes", ())),
        environment=dict(facts.get("environment", {})),
    )


def _budget(profile: Profile) -> Budget | None:
    """The budget of the step with the median time among those that have one."""
    table = profile.table("step_budget")
    if table.empty:
        return None
    totals = table.groupby("step")["dur_ns"].sum().sort_values()
    step = int(totals.index[(len(totals) - 1) // 2])
    total = int(totals.loc[step])
    rows = table[(table["step"] == step) & (table["dur_ns"] > 0)].sort_values("dur_ns", ascending=False)
    shares = tuple(
        BudgetShare(str(owner), int(ns), int(ns) / total)
        for owner, ns in zip(rows["owner"], rows["dur_ns"], strict=True)
    )
    ruler = "device" if profile.facts.get("gpu") else "main thread"
    return Budget(step, total, ruler, shares, _observation(profile, step))


def _observation(profile: Profile, step: int) -> str | None:
    """How a step was profiled; None for a trace that somebody else recorded, whose settings are not ours."""
    if "trace" in profile.facts:
        return None
    steps = profile.table("steps")
    seen = steps.loc[steps["step"] == step, "observation"].dropna()
    return None if seen.empty else str(seen.iloc[0])


def _step_times(profile: Profile) -> tuple[StepTime, ...]:
    table = profile.table("steps").head(MAX_STEP_TIMES)
    rows = table.assign(compile_ns=table["compile_ns"].fillna(0)).to_dict("records")
    return tuple(
        StepTime(
            int(row["step"]),
            int(row["dur_ns"]),
            str(row["observation"]),
            bool(row["warmup"]),
            int(row["compile_ns"] or 0),
        )
        for row in rows
    )
