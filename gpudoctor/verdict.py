"""The verdict: the step time, and what can be won back, in one or two sentences."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.diagnosis import Finding, Memory, Replay, Run, Saving
from gpudoctor.profile import Profile
from gpudoctor.units import format_bytes, format_ns, format_range, format_share, plural


def verdict(
    run: Run,
    findings: Sequence[Finding],
    judged: int,
    compiled: str,
    replay: Replay | None = None,
    memory: Memory | None = None,
) -> str:
    """The step time, and what can be won back at most.

    Savings of several findings are not added up: what they save together is known where they were replayed together.

    Args:
        run: the run's facts.
        findings: ranked.
        judged: how many rules could be judged.
        compiled: what was compiled, for a compile log.
        replay: what the replay says of all fixes at once.
        memory: what holds the GPU's memory, for an allocator snapshot.
    """
    if not run.steps and not run.stepless:
        return "Inconclusive: no training step was seen, so nothing about speed can be said."
    if run.source == "snapshot":
        return " ".join(filter(None, (_held(memory), _memory_found(findings))))
    time = compiled if run.source == "log" else _time(run)
    live = [finding for finding in findings if finding.accepted is None and finding.explained_by is None]
    if not live:
        if not judged:
            return f"{time} No rule could be judged on this run."
        found = "Nothing that counts was" if findings else "Nothing was"
        return f"{time} {found} found by the {plural(judged, 'rule')} that could be judged."
    return f"{time} {_won_back(live, replay, run.step_ns)}"


def _won_back(live: Sequence[Finding], replay: Replay | None, step_ns: int | None) -> str:
    """What the findings that count are worth; what few steps have can be more than the median step takes."""
    priced = [(finding.saving, finding) for finding in live if finding.saving and finding.saving.ns_per_step > 0]
    if not priced:
        return f"{plural(len(live), 'finding')}, none with a price in time."
    saving, best = max(priced, key=lambda pair: pair[0].ns_per_step)
    title = f"{best.title[0].lower()}{best.title[1:].rstrip('.')}"
    what = f"at {best.where}, {title}" if best.where else title
    if saving.of_compiling:
        cost = format_ns(saving.ns_per_step)
        return f"Compiling again adds {cost} a step on top, spread over the steps seen: {what}."
    of = (
        " of it" if step_ns is None or saving.ns_per_step <= step_ns else " a step on average, as few steps have it all"
    )
    largest = f"The largest single saving is {_worth(saving, of)}: {what}."
    return " ".join(filter(None, (largest, _together(live, replay))))


def _together(live: Sequence[Finding], replay: Replay | None) -> str:
    """What the fixes that were replayed save at once; empty below two of them."""
    saving = replay.together if replay else None
    replayed = sum(finding.replayed for finding in live)
    if saving is None or not saving.ns_per_step or replayed < 2:
        return ""
    everything = "Both fixes" if replayed == 2 else f"All {replayed} fixes"
    fixes = everything if replayed == len(live) else f"The {replayed} fixes that a replay can price"
    return f"{fixes} together save {_worth(saving)}."


def _worth(saving: Saving, of: str = "") -> str:
    """What is saved and its share: `at most 31.0 ms (39 %)`, `25.0 to 31.0 ms of it (32 to 39 %)` with " of it"."""
    low = saving.ns_per_step if saving.low_ns is None else saving.low_ns
    high = saving.ns_per_step if saving.high_ns is None else saving.high_ns
    least, most = (min(1.0, saving.share * ns / saving.ns_per_step) for ns in (low, high))
    amount = format_range(low, high, format_ns)
    about = "" if saving.is_bound or saving.grade == "measured" else "about "
    if low and amount != format_ns(high):
        return f"{about}{amount}{of} ({format_range(least, most, format_share)})"
    bound = "at most " if saving.is_bound or not low else about
    return f"{bound}{format_ns(high)}{of} ({format_share(most)})"


def _held(memory: Memory | None) -> str:
    """What the GPU that holds most does with its memory."""
    if memory is None or not memory.devices:
        return "The snapshot has no memory in it: nothing was allocated on a GPU when it was taken."
    most = max(memory.devices, key=lambda device: device.reserved_bytes)
    on = f"GPU {most.device}" if len(memory.devices) > 1 else "The allocator"
    said = f"{on} holds {format_bytes(most.reserved_bytes)} for {format_bytes(most.allocated_bytes)} of tensors"
    if most.peak_bytes is None:
        return f"{said}."
    share = format_share(min(1.0, most.peak_bytes / most.reserved_bytes)) if most.reserved_bytes else "none"
    return f"{said}; at the peak tensors took {format_bytes(most.peak_bytes)}, {share} of it."


def _memory_found(findings: Sequence[Finding]) -> str:
    live = [finding for finding in findings if finding.accepted is None and finding.explained_by is None]
    if not live:
        return ""
    best = live[0]
    title = f"{best.title[0].lower()}{best.title[1:].rstrip('.')}"
    return f"{plural(len(live), 'finding')}, the first: {f'at {best.where}, ' if best.where else ''}{title}."


def _time(run: Run) -> str:
    if run.step_ns is not None:
        return f"A step takes {format_ns(run.step_ns)}."
    if run.profiled_step_ns is not None:
        return f"A profiled step takes {format_ns(run.profiled_step_ns)}."
    return f"{plural(run.steps, 'step')} seen, too few without the profiler to time one."


def compiled(profile: Profile) -> str:
    """What was compiled, for a run whose steps are unknown."""
    table = profile.table("compilations")
    if table.empty:
        return "Nothing was compiled."
    took = int(table["dur_ns"].fillna(0).sum() + table["backward_ns"].fillna(0).sum())
    graphs = plural(int(table["graph_ops"].fillna(0).gt(0).sum()), "graph")
    breaks = plural(len(profile.table("graph_breaks")), "graph break")
    again = plural(sum(not row["refused"] for row in profile.rows("recompiles")), "recompile")
    time = f" in {format_ns(took)}" if took else ""
    failed = int((table["fail_type"].notna() & ~table["limit_hit"].fillna(False)).sum())
    limits = int(table["limit_hit"].fillna(False).sum())
    more = [f"{plural(failed, 'compilation')} failed"] if failed else []
    more += [f"the recompile limit was hit {plural(limits, 'time')}"] if limits else []
    return f"{graphs} compiled{time}: {', '.join([breaks, again, *more])}; a compile log has no step times."
