"""Runs rules over a profile: what was found, what was judged and is fine, and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpudoctor.config import Config, Value, suggestion
from gpudoctor.diagnosis import SEVERITIES, Finding, NotMeasured, Passed, Replay, Run
from gpudoctor.engine.causes import nested
from gpudoctor.engine.contract import check_tables, check_texts
from gpudoctor.engine.finding import judged_again, make_finding, with_range
from gpudoctor.engine.fingerprint import with_fingerprints
from gpudoctor.engine.pricing import Made, Pricing
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.sandbox import RuleLimitError, Sandbox
from gpudoctor.errors import UsageError
from gpudoctor.profile import Profile
from gpudoctor.units import plural

_ROWS_NEEDED = ("steps", "ops", "kernels")
"""Tables that, empty, mean that nothing was watched; the other tables are empty on a healthy run."""

_OBSERVED = ("ops", "steps")
"""Tables that say how a step was watched, the more telling first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rules say about a profile: every rule that ran is in exactly one of the three."""

    findings: tuple[Finding, ...]
    not_measured: tuple[NotMeasured, ...]
    passed: tuple[Passed, ...]
    replay: Replay | None = None


def diagnose(
    profile: Profile,
    rules: Iterable[Rule],
    *,
    run: Run | None = None,
    config: Config | None = None,
    strict: bool = False,
    replayed: bool = True,
) -> Outcome:
    """Runs the rules that the configuration selects.

    Args:
        profile: the tables, facts (`step_ns`, `epoch_seen`) and sources.
        rules: all known rules.
        run: gives the step time when there is one; else the profile's fact `step_ns` does.
        config: selection, thresholds and whether preview rules run.
        replayed: price findings by replaying the profiled steps; the few rows of a rule's examples are no steps.
        strict: a rule that runs out of its limits is an error, not a rule that was not measured.

    Returns:
        Findings by saving, then severity, then place; rules not measured and rules passed by id.

    Raises:
        RuleError: a rule is wrong.
        RuleLimitError: a rule ran out of its limits, and `strict` is set.
        UsageError: the configuration names a rule or threshold that does not exist.
    """
    config = config or Config()
    known = tuple(rules)
    thresholds = _thresholds(known, config)
    step_ns = _step_ns(profile, run)
    sandbox = Sandbox(profile)
    made: list[Made] = []
    judged: list[Rule] = []
    not_measured: list[NotMeasured] = []
    passed: list[Passed] = []
    for rule in select_rules(known, config):
        check_tables(rule)
        check_texts(rule)
        missing = _missing(rule, profile)
        if rule.status == "preview" and not config.preview:
            missing = _off(rule, missing)
        if missing is not None:
            not_measured.append(missing)
            continue
        try:
            rows = sandbox.query(rule.sql, rule.tables, thresholds[rule.id], f"{rule.id} ({rule.path.name})")
        except RuleLimitError as error:
            if strict:
                raise
            how = "report it with this recording, or give the rule stricter thresholds"
            not_measured.append(NotMeasured(rule.id, rule.name, str(error), how))
            continue
        made += [Made(make_finding(rule, row, profile.sources, step_ns), rule, row) for row in rows]
        judged.append(rule)
    by_id = {rule.id: rule for rule in known}
    pricing = Pricing(profile, made, step_ns, replayed)
    findings, replay = _ranked(profile, pricing, by_id, step_ns)
    found = {finding.rule for finding in findings}
    for rule in judged:
        if rule.id in found:
            continue
        if (unseen := _unseen(rule, profile)) is not None:
            not_measured.append(unseen)
        else:
            passed.append(Passed(rule.id, rule.name, rule.title))
    not_measured.sort(key=lambda rule: rule.rule)
    return Outcome(tuple(findings), tuple(not_measured), tuple(passed), replay)


def _ranked(
    profile: Profile, pricing: Pricing, rules: Mapping[str, Rule], step_ns: int | None
) -> tuple[list[Finding], Replay | None]:
    """The findings with their causes, by what each adds to those above it; and what all their fixes save together."""
    findings = with_fingerprints([_judged(each) for each in pricing.made], profile.sources)
    roots = {
        place
        for place, finding in enumerate(nested(findings, rules))
        if finding.accepted is None and finding.explained_by is None
    }
    ranking = pricing.rank(roots)
    for place, adds in ranking.adds.items():
        saving = findings[place].saving
        if saving is not None:
            made = replace(pricing.made[place], finding=replace(findings[place], saving=replace(saving, adds_ns=adds)))
            findings[place] = _judged(made)
    findings = [
        with_range(made.rule, made.row, finding, step_ns) for made, finding in zip(pricing.made, findings, strict=True)
    ]
    useless = {findings[place].fingerprint: findings[cause].fingerprint for place, cause in ranking.causes.items()}
    facts = None if pricing.replay is None else replace(pricing.replay, together=ranking.together)
    return nested(sorted(findings, key=_rank), rules, useless), facts


def _step_ns(profile: Profile, run: Run | None) -> int | None:
    """The step time that savings are shares of: that of unprofiled steps, else, in a bare trace, of profiled ones."""
    step_ns = run.step_ns if run is not None and run.step_ns is not None else profile.facts.get("step_ns")
    if step_ns is None and "trace" in profile.facts:
        step_ns = profile.facts.get("profiled_step_ns")
    return None if step_ns is None else int(step_ns)


def select_rules(rules: Sequence[Rule], config: Config) -> tuple[Rule, ...]:
    """The rules that `select` and `ignore` leave, in the order of their ids.

    Raises:
        UsageError: an entry fits no rule.
    """
    for key, words in (("select", config.select), ("ignore", config.ignore)):
        for word in words:
            if not any(_fits(word, rule) for rule in rules):
                hint = suggestion(word, [name for rule in rules for name in (rule.id, rule.name)])
                raise UsageError(f"{config.path or 'command line'}: `{key}` has {word!r}, which is no rule{hint}")
    chosen = [
        rule
        for rule in rules
        if (not config.select or any(_fits(word, rule) for word in config.select))
        and not any(_fits(word, rule) for word in config.ignore)
    ]
    return tuple(sorted(chosen, key=lambda rule: rule.id))


def check_config(rules: Sequence[Rule], config: Config) -> None:
    """Checks that the configuration names only rules and thresholds that exist, before anything is run.

    Raises:
        UsageError: it does not.
    """
    select_rules(rules, config)
    _thresholds(rules, config)


def _fits(word: str, rule: Rule) -> bool:
    """Whether an entry names the rule: its name, its id or the beginning of its id."""
    return bool(word) and (word.lower() == rule.name or rule.id.startswith(word.upper()))


def _thresholds(rules: Sequence[Rule], config: Config) -> dict[str, Mapping[str, Value]]:
    """The thresholds of each rule, with the configured ones in place of the rule's own."""
    by_id = {rule.id: rule for rule in rules}
    for rule_id, values in config.thresholds.items():
        at = f"{config.path}: [tool.gpudoctor.rules.{rule_id}]"
        if rule_id not in by_id:
            raise UsageError(f"{at} is for a rule that does not exist{suggestion(rule_id, by_id)}")
        known = by_id[rule_id].thresholds
        for name, value in values.items():
            if name not in known:
                hint = suggestion(name, known) or f"; it has {', '.join(known) or 'none'}"
                raise UsageError(f"{at}: the rule has no threshold {name!r}{hint}")
            if _kind(value) != _kind(known[name].value):
                raise UsageError(f"{at}: {name} is {value!r}; it must be a {_kind(known[name].value)}")
    return {
        rule.id: {name: threshold.value for name, threshold in rule.thresholds.items()}
        | dict(config.thresholds.get(rule.id, {}))
        for rule in rules
    }


def _kind(value: Value) -> str:
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _off(rule: Rule, missing: NotMeasured | None) -> NotMeasured:
    """A preview rule while previews are off: what it takes besides is said too, and that nothing would help, alone."""
    if missing is None:
        how = "run with `--preview`, or set `preview = true` in [tool.gpudoctor]"
        return NotMeasured(rule.id, rule.name, "preview rules are off", how)
    if not missing.how:
        return missing
    reason = f"preview rules are off, and {missing.reason}"
    return NotMeasured(rule.id, rule.name, reason, f"add `--preview`, and {missing.how}")


def _missing(rule: Rule, profile: Profile) -> NotMeasured | None:
    """Why the rule cannot be judged at all; None when it can."""
    for name in rule.requires:
        if not profile.measured(name) or (name in _ROWS_NEEDED and profile.table(name).empty):
            reason, how = profile.why_not(name)
            if profile.measured(name):
                reason = f"no {'step' if name == 'steps' else 'profiled step' if name == 'ops' else 'kernel'} was seen"
            return NotMeasured(rule.id, rule.name, reason, _how(profile, how))
    if rule.observation is not None:
        table = next((name for name in _OBSERVED if name in rule.requires), None)
        any_mode = any(profile.measured(name) for name in rule.instead)
        if table and (seen := _watched(profile, table, None if any_mode else rule.observation)) < rule.min_steps:
            mode = "with the profiler" if any_mode else f"in {rule.observation} mode"
            wanted = f"{plural(rule.min_steps, 'step')} watched {mode} outside warm-up"
            how = (
                profile.why_not(table)[1] if table == "ops" else "let the run go on: more steps, or a larger `--budget`"
            )
            what = "trace" if "trace" in profile.facts else "run"
            return NotMeasured(rule.id, rule.name, f"it takes {wanted}, this {what} has {seen}", _how(profile, how))
    return None


def _how(profile: Profile, how: str) -> str:
    """What to do about it; a trace cannot be run on."""
    if "log" in profile.facts or "snapshot" in profile.facts:
        return "record the run with `gpudoctor check train.py`"
    if "trace" not in profile.facts:
        return how
    return "record the run with `gpudoctor check train.py`, or a trace of more steps with shapes and stacks"


def _watched(profile: Profile, table: str, observation: str | None) -> int:
    """How many steps outside warm-up the table has in an observation mode; None: in any."""
    rows = profile.table(table)
    if observation is not None:
        rows = rows[rows["observation"].eq(observation).fillna(False)]
    if "warmup" in rows:
        rows = rows[~rows["warmup"].fillna(False)]
    return int(rows["step"].nunique())


def _unseen(rule: Rule, profile: Profile) -> NotMeasured | None:
    """Why silence means nothing here: what the rule looks for may come at an epoch's end that was not seen."""
    if rule.horizon == "step" or profile.facts.get("epoch_seen") is not False:
        return None
    return NotMeasured(
        rule.id,
        rule.name,
        "nothing was found up to here, but the end of an epoch was not seen",
        "let the run reach it: a larger `--budget`, or `--run-to-end`",
    )


def _judged(made: Made) -> Finding:
    """The finding with the severity that its price gives it."""
    return judged_again(made.rule, made.row, made.finding)


def _rank(finding: Finding) -> tuple[int, int, str, int, str]:
    """Sort key: what adds most to the ones above it first, then severity, then place."""
    saving = -1
    if finding.saving:
        saving = finding.saving.ns_per_step if finding.saving.adds_ns is None else finding.saving.adds_ns
    file, line = (finding.where.file, finding.where.line) if finding.where else ("", 0)
    return (-saving, SEVERITIES.index(finding.severity), file, line, finding.rule)
