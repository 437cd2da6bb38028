"""One line a finding: `train.py:17: error GD101 graph-break: message`, for editors, grep and logs.

A finding without a place begins with its severity."""

from __future__ import annotations

from gpudoctor.diagnosis import Diagnosis, Finding
from gpudoctor.reporters import savings
from gpudoctor.reporters.wording import one_line, place


def render(diagnosis: Diagnosis) -> str:
    """The findings that count, ranked, one a line; empty when there are none."""
    by_mark = {finding.fingerprint: finding for finding in diagnosis.live}
    causes = [by_mark.get(finding.explained_by) if finding.explained_by else None for finding in diagnosis.live]
    return "".join(_line(finding, cause) + "\n" for finding, cause in zip(diagnosis.live, causes, strict=True))


def _line(finding: Finding, cause: Finding | None) -> str:
    where = f"{place(finding.where)}: " if finding.where else ""
    worth = finding.saving
    words = filter(None, (savings.amount(worth), savings.share(worth), worth.grade)) if worth else ()
    saving = f" ({', '.join(words)})" if worth else ""
    rule = f"{one_line(finding.rule)} {one_line(finding.name)}"
    why = f" [explained by {one_line(cause.rule)} {place(cause.where)}]" if cause else ""
    return f"{where}{finding.severity} {rule}: {one_line(finding.message)}{saving}{why}"
