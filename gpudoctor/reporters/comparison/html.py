"""A comparison as one self-contained page, made as the report of a diagnosis is."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.compare import Comparison, to_json
from gpudoctor.reporters import prose
from gpudoctor.reporters.comparison import words
from gpudoctor.reporters.html import page_of
from gpudoctor.reporters.wording import one_line, place

SHOWN = 200
"""Lines of one kind on the page; the JSON in it has all."""


@dataclass(frozen=True, slots=True)
class RegressionView:
    """What one line made worse."""

    where: str
    text: str
    message: str
    also: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """What the page shows, in its order."""

    title: str
    verdict: str
    sentence: str
    sides: str
    script: str
    reasons: tuple[str, ...]
    regressions: tuple[RegressionView, ...]
    differing: tuple[words.CounterRow, ...]
    equal: tuple[words.CounterRow, ...]
    same: str
    findings: tuple[tuple[str, str], ...]
    kept: int
    time: str
    caveats: tuple[str, ...]
    version: str


def render(comparison: Comparison) -> str:
    """The page as text; write it as UTF-8."""
    return page_of("comparison.html", _view(comparison), to_json(comparison))


def _view(comparison: Comparison) -> ComparisonView:
    return ComparisonView(
        title=f"gpudoctor: {comparison.verdict}",
        verdict=comparison.verdict,
        sentence=one_line(comparison.sentence),
        sides=words.sides(comparison),
        script=one_line(comparison.head.run.script),
        reasons=tuple(map(one_line, comparison.inconclusive)),
        regressions=tuple(
            RegressionView(
                place(one.where) if one.where else "no line is known",
                one_line(one.text),
                one_line(one.message),
                tuple(dict.fromkeys(place(at) for at in one.also)),
            )
            for one in comparison.regressions[:SHOWN]
        ),
        differing=words.rows(comparison, differing=True),
        equal=words.rows(comparison, differing=False),
        same=words.same(comparison),
        findings=tuple((words.STATUS[change.status], words.finding(change)) for change in comparison.findings[:SHOWN]),
        kept=comparison.kept,
        time=words.time(comparison),
        caveats=tuple(prose.inline(caveat) for caveat in comparison.caveats),
        version=one_line(comparison.gpudoctor),
    )
