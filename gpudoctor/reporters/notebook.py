"""What a notebook shows for a Diagnosis: a few lines of plain HTML, no script, small enough to be committed with it."""

from __future__ import annotations

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpudoctor.diagnosis import Diagnosis, Finding
from gpudoctor.reporters import prose, savings, wording
from gpudoctor.resources import templates_dir

_SHOWN = 10
"""Findings shown; the report has all."""


def render(diagnosis: Diagnosis) -> str:
    """An HTML fragment: facts, verdict, findings."""
    loader = FileSystemLoader(templates_dir())
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("notebook.html").render(
        facts=wording.run_words(diagnosis.run),
        verdict=wording.verdict(diagnosis),
        notes=[wording.one_line(note) for note in wording.caveats(diagnosis)],
        findings=[_finding(finding) for finding in diagnosis.roots[:_SHOWN]],
    )


def _finding(finding: Finding) -> dict[str, object]:
    culprit = next((line.text.strip() for line in finding.excerpt if line.culprit), "")
    return {
        "severity": finding.severity,
        "rule": finding.rule,
        "place": wording.place(finding.where),
        "saving": savings.amount(finding.saving) if finding.saving else "",
        "title": wording.one_line(finding.title),
        "message": prose.inline(finding.message),
        "line": wording.visible(culprit),
        "remedy": prose.inline(finding.remedy.text) if finding.remedy else "",
    }
