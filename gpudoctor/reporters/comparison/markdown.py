"""A comparison as a comment on a pull request: counters first, within GitHub's 65,536 characters.

The first line is a marker by which a later run finds its own comment and replaces it.
"""

from __future__ import annotations

import re

from gpudoctor.compare import Comparison, Regression
from gpudoctor.reporters.comparison import words
from gpudoctor.reporters.wording import one_line, place

MARKER = "<!-- gpudoctor-review -->"
LIMIT = 65_536
"""Most characters of a comment on GitHub (docs.github.com, issue comments); GitLab takes more."""
_CELL = 300
_MOST = 100


def render(comparison: Comparison) -> str:
    """The comment; parts at the end are left out, and that is said, where it would be too long."""
    parts = [
        f"{MARKER}\n## gpudoctor: {_text(comparison.verdict)}",
        _text(comparison.sentence),
        _counters(comparison),
        *(f"- {_text(reason)}" for reason in comparison.inconclusive[1:]),
        *map(_regression, comparison.regressions[:_MOST]),
        _text(words.time(comparison)),
        *_findings(comparison),
        *(f"> {_text(caveat)}" for caveat in comparison.caveats),
        f"<sub>{_text(words.sides(comparison))}. {_text(words.same(comparison))}</sub>",
    ]
    return _bounded([part for part in parts if part])


def _bounded(parts: list[str]) -> str:
    cut = "\n\nMore was found than fits here: see the job's report."
    kept: list[str] = []
    size = len(cut) + 1
    for part in parts:
        if size + len(part) + 2 > LIMIT:
            return "\n\n".join(kept) + cut + "\n"
        kept.append(part)
        size += len(part) + 2
    return "\n\n".join(kept) + "\n"


def _counters(comparison: Comparison) -> str:
    rows = words.rows(comparison, differing=True)
    if not rows:
        return ""
    lines = ["| counter | base | head | Δ | |", "|---|---:|---:|---:|---|"]
    for row in rows[:_MOST]:
        said = f"**{row.verdict}**" if row.verdict == "worse" else _cell(row.verdict)
        why = f" ({_cell(row.reason)})" if row.reason else ""
        lines.append(
            f"| {_cell(row.title)} | {_cell(row.base)} | {_cell(row.head)} | {_cell(row.delta)} | {said}{why} |"
        )
    return "\n".join(lines)


def _regression(one: Regression) -> str:
    where = _code(place(one.where)) if one.where else "no line is known"
    text = f" {_code(one.text)}" if one.text else ""
    also = ", ".join(_code(place(at)) for at in one.also)
    return f"- {where}{text}<br>{_text(one.message)}" + (f"<br>counted at {also}" if also else "")


def _findings(comparison: Comparison) -> list[str]:
    if not comparison.findings:
        return []
    lines = [
        f"- {words.STATUS[change.status]}: {_text(words.finding(change))}" for change in comparison.findings[:_MOST]
    ]
    return ["<details><summary>Findings that changed</summary>\n\n" + "\n".join(lines) + "\n\n</details>"]


def _text(text: str) -> str:
    """Text that stays text: nothing in it is Markdown, HTML, a mention or a reference."""
    plain = one_line(text)[:2000]
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", plain)
    return re.sub(r"@(?=\w)", "@\u200b", plain)


def _cell(text: str) -> str:
    return _text(text[:_CELL])


def _code(text: str) -> str:
    """A code span that ends where the text ends, whatever is in it."""
    plain = one_line(text)[:_CELL]
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", plain)), default=0) + 1)
    padding = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{padding}{plain}{padding}{ticks}"
