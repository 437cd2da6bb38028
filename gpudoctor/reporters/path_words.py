"""The words on the critical path and on how well the replay gives the steps back, for every format."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis import CriticalPath, Diagnosis, PathShare
from gpudoctor.reporters import savings
from gpudoctor.reporters.wording import one_line, place
from gpudoctor.units import format_ns, format_share, plural

TITLE = "What the step hangs on"

MOST = 6
"""Owners shown: the tail has hundreds, each too small to act on."""

_ENGINE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True, slots=True)
class Owner:
    """One line of the path: who, how long, and where; `where` is empty when no line is known."""

    name: str
    where: str
    time: str
    share: str


def source(path: CriticalPath) -> str:
    """Which step it is, and what it says."""
    return f"step {path.step}, {format_ns(path.step_ns)}: no fix elsewhere makes it shorter"


def owners(path: CriticalPath) -> tuple[Owner, ...]:
    """The largest owners, and the others as one."""
    streams = {share.stream for share in path.shares if share.kind == "device"}
    shown = path.shares if len(path.shares) <= MOST + 1 else path.shares[:MOST]
    made = [_owner(share, len(streams) > 1) for share in shown]
    rest = path.shares[len(shown) :]
    if rest:
        ns = sum(share.ns for share in rest)
        share = format_share(ns / path.step_ns)
        made.append(Owner(f"{plural(len(rest), 'smaller owner')}", "", format_ns(ns), share))
    return tuple(made)


def _owner(share: PathShare, several: bool) -> Owner:
    stream = f", stream {share.stream}" if several and share.kind == "device" else ""
    where = place(share.where) if share.where else ""
    return Owner(one_line(_name(share)) + stream, where, format_ns(share.ns), format_share(share.share))


def _name(share: PathShare) -> str:
    name = (share.name or "").removeprefix(_ENGINE)
    match share.kind:
        case "host":
            return name or "Python between operators"
        case "device":
            return f"GPU: {name or 'work'}"
        case "latency":
            return "launch latency"
        case "wait":
            return f"wait in {name}" if name else "wait without a known cause"
    return name or share.kind


def trust(diagnosis: Diagnosis) -> str:
    """How well the unchanged replay gives the steps back; empty when nothing that is shown was made of a replay."""
    replay = diagnosis.replay
    if replay is None or replay.refused is not None:
        return ""
    if diagnosis.critical_path is None and not _simulated(diagnosis):
        return ""
    return (
        f"{plural(replay.steps, 'step')} replayed unchanged: {format_share(replay.error)} off "
        f"(worst {format_share(replay.worst_error)}), {format_share(replay.opaque_share)} unexplained waits"
    )


@dataclass(frozen=True, slots=True)
class Together:
    """What all simulated fixes save at once."""

    label: str
    amount: str
    words: str


def together(diagnosis: Diagnosis) -> Together | None:
    """What all simulated fixes save at once; None below two of them."""
    saving = diagnosis.replay.together if diagnosis.replay else None
    number = _simulated(diagnosis)
    if saving is None or number < 2:
        return None
    which = "all findings" if number == len(diagnosis.roots) else f"the {number} findings that a replay can price"
    return Together(f"Fixed together, {which} save", savings.amount(saving), savings.sentence(saving))


def _simulated(diagnosis: Diagnosis) -> int:
    """Findings that count and whose fixes were replayed."""
    return sum(finding.replayed for finding in diagnosis.roots)
