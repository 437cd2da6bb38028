"""A small valid rule file, in parts that tests change."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.engine.rule import Rule
from gpudoctor.engine.rulefile import parse_rule

FRONT = """\
id = "XY001"
name = "slow-step"
title = "A step is slow"
since = "0.1"
status = "stable"
horizon = "step"
requires = ["steps"]
"""
THRESHOLDS = """\
[thresholds]
slow_ns = { value = 100, unit = "ns", doc = "a reason" }
"""
SQL = "SELECT 'train.py' AS file, step AS line, dur_ns AS cost_ns FROM steps WHERE dur_ns > $slow_ns"
SECTIONS = {
    "Message": "{{ cost_ns | ns }} is slow.",
    "What it means": "It is slow.",
    "Why it costs time": "Because.",
    "How to fix": "Be fast.",
    "When this is wrong": "Never.",
    "References": "- [x](https://example.org)",
    "Examples": (
        "One.\n```toml bad expect=1\nsteps = [{ step = 3, dur_ns = 900 }]\n```\n\n"
        "None.\n```toml good\nsteps = [{ step = 3, dur_ns = 9 }]\n```"
    ),
}


def rule_text(
    front: str = FRONT, thresholds: str = THRESHOLDS, sql: str = SQL, more: str = "", **sections: str | None
) -> str:
    """The file's text; `sections` replaces sections (words joined by `_`), None leaves one out."""
    changed = {name.replace("_", " "): text for name, text in sections.items()}
    body = "\n\n".join(f"## {title}\n{text}" for title, text in ({**SECTIONS, **changed}).items() if text is not None)
    return f"+++\n{front}\n{thresholds}+++\n\n```sql\n{sql}\n```\n{more}\n{body}\n"


def make_rule(**parts: str | None) -> Rule:
    """The rule of `rule_text(**parts)`."""
    return parse_rule(rule_text(**parts), Path("rules/XY001-slow-step.md"))  # type: ignore[arg-type]
