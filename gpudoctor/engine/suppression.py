"""`# gpudoctor: ignore[GD301] reason` in the user's source turns a finding into an accepted one.

The comment counts on the finding's line, anywhere in the statement around it, or alone on the line above either.
Without brackets it covers every rule; several ids are separated by commas. Text inside strings is no comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpudoctor.engine.source import comments, lines_of, statement_lines

DEFAULT_REASON = "suppressed in the source"
_MARK = re.compile(r"#\s*gpudoctor:\s*ignore(?:\[([^\]]*)\])?(?![\w\[])[:\s]*([^#]*)", re.IGNORECASE)


def suppressed(text: str, line: int, rule_id: str, rule_name: str) -> str | None:
    """Why a finding of a rule on a line is accepted; None when no comment says so.

    Args:
        text: source of the file.
        line: 1-based line of the finding.
        rule_id: e.g. GD301; the comment may also give the rule's name.
        rule_name: e.g. host-sync.
    """
    found = comments(text)
    first, last = statement_lines(text, line)
    lines = lines_of(text)
    above = {n - 1 for n in (first, line) if 0 < n - 1 <= len(lines) and lines[n - 2].lstrip().startswith("#")}
    for number in sorted({*range(first, last + 1), line} | above, key=lambda n: abs(n - line)):
        if number in found and (reason := _reason(found[number][1], rule_id, rule_name)):
            return reason
    return None


def unknown_names(sources: Mapping[str, str], known: Iterable[str]) -> list[tuple[str, int, str]]:
    """What such comments name that is no rule: file, line and the word as written.

    Args:
        sources: text of files by path.
        known: ids and names of all rules.
    """
    names = {word.lower() for word in known}
    return [
        (file, line, word.strip())
        for file, text in sources.items()
        if "gpudoctor" in text.lower()
        for line, (_, comment) in sorted(comments(text).items())
        for mark in _MARK.finditer(comment)
        for word in (mark[1] or "").split(",")
        if word.strip() and word.strip().lower() not in names
    ]


def _reason(comment: str, rule_id: str, rule_name: str) -> str | None:
    for mark in _MARK.finditer(comment):
        ids = None if mark[1] is None else {word.strip().lower() for word in mark[1].split(",")}
        if ids is None or rule_id.lower() in ids or rule_name in ids:
            return mark[2].strip() or DEFAULT_REASON
    return None
