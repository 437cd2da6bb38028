"""Reads rule files: one Markdown file a rule, checked so that every mistake names the file, the fault and what to do.

Light on purpose: neither pandas nor duckdb is imported, so that `explain` and `rules list` answer at once. Whether the
tables exist and the query runs is checked where it is run (`contract.py`, `sandbox.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gpudoctor.config import is_setting, suggestion
from gpudoctor.diagnosis import SEVERITIES
from gpudoctor.engine.causes import check_causes
from gpudoctor.engine.editfields import read_edit
from gpudoctor.engine.fields import (
    FieldError,
    as_count,
    as_table,
    get_choice,
    get_names,
    get_text,
    only_known,
    parse_toml,
)
from gpudoctor.engine.markdown import Block, Document, MarkdownError, split
from gpudoctor.engine.rule import (
    SECTIONS,
    Cause,
    EditKind,
    EventsOf,
    Example,
    Horizon,
    Observation,
    RemedyText,
    Rule,
    Share,
    Status,
    Threshold,
    WhatIf,
)
from gpudoctor.errors import RuleError, UsageError
from gpudoctor.resources import rules_dir

_ID = re.compile(r"[A-Z]{2,5}\d{3,4}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SQL_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", re.DOTALL)
_PARAMETER = re.compile(r"\$([A-Za-z_]\w*)")
_EXAMPLE = re.compile(r"toml (?:(good)|bad expect=([1-9]\d*))")
_TEXTS = ("id", "name", "title", "since", "status", "horizon")
_KEYS = (
    *_TEXTS,
    "requires",
    "optional",
    "observation",
    "min_steps",
    "instead",
    "severity",
    "max_severity",
    "explained_by",
    "evidence_title",
    "thresholds",
    "what_if",
    "remedies",
)


def load_rules(folders: Iterable[Path] = ()) -> tuple[Rule, ...]:
    """Loads the built-in rules and those of further folders (`*.md`; README.md is not a rule).

    Returns:
        The rules in the order of their ids.

    Raises:
        RuleError: a folder is missing, a file is wrong, or two rules share an id or a name.
    """
    rules: dict[str, Rule] = {}
    for folder in (rules_dir(), *folders):
        if not folder.is_dir():
            raise RuleError(f"{folder}: no such folder of rules; correct `rule-dirs` in pyproject.toml")
        for path in sorted(folder.glob("*.md")):
            if path.name.lower() == "readme.md":
                continue
            rule = load_rule(path)
            for key in (rule.id, rule.name):
                if key in rules:
                    raise RuleError(f"{path}: {key} is taken by {rules[key].path}; give the rule its own id and name")
                rules[key] = rule
    loaded = tuple(sorted({rule.id: rule for rule in rules.values()}.values(), key=lambda rule: rule.id))
    check_causes(loaded)
    return loaded


def find_rule(rules: Iterable[Rule], word: str) -> Rule:
    """The rule of that id or name.

    Raises:
        UsageError: there is none; the text names the closest.
    """
    known = {key.lower(): rule for rule in rules for key in (rule.id, rule.name)}
    if word.lower() not in known:
        hint = suggestion(word, [key for rule in known.values() for key in (rule.id, rule.name)])
        raise UsageError(f"no rule {word!r}{hint or '; `gpudoctor rules list` lists them'}")
    return known[word.lower()]


def load_rule(path: Path) -> Rule:
    """Loads one rule file.

    Raises:
        RuleError: the file cannot be read or is not a valid rule file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    return parse_rule(text, path)


def parse_rule(text: str, path: Path) -> Rule:
    """Makes a Rule of the text of a rule file; `path` is for messages.

    Raises:
        RuleError: the text is not a valid rule file.
    """
    try:
        document = split(text)
        front = parse_toml(document.front, "front matter")
        return _rule(document, front, path)
    except (MarkdownError, FieldError) as fault:
        raise RuleError(f"{path}: {fault}") from None


def _rule(document: Document, front: Mapping[str, Any], path: Path) -> Rule:
    only_known(front, _KEYS, "front matter")
    for key in (*_TEXTS, "requires"):
        if key not in front:
            raise FieldError(f"front matter lacks `{key}`; add it")
    texts = {key: get_text(front, key) for key in _TEXTS}
    if not _ID.fullmatch(texts["id"]):
        raise FieldError(f"`id` is {texts['id']!r}; it must be capital letters and a number, e.g. GD101")
    if not _NAME.fullmatch(texts["name"]):
        raise FieldError(f"`name` is {texts['name']!r}; it must be kebab-case, e.g. graph-break")
    thresholds = _thresholds(front.get("thresholds", {}))
    sql = _sql(document.blocks)
    _same_parameters(thresholds, sql)
    remedies = _remedies(front.get("remedies", {}))
    return Rule(
        id=texts["id"],
        name=texts["name"],
        title=texts["title"],
        since=texts["since"],
        status=get_choice(front, "status", get_args(Status)),
        horizon=get_choice(front, "horizon", get_args(Horizon)),
        requires=get_names(front, "requires", least=1),
        optional=get_names(front, "optional"),
        observation=get_choice(front, "observation", get_args(Observation), None),
        min_steps=as_count(front.get("min_steps", 1), "min_steps"),
        instead=get_names(front, "instead"),
        severity=get_choice(front, "severity", SEVERITIES, "warning"),
        max_severity=get_choice(front, "max_severity", SEVERITIES, None),
        explained_by=_causes(front.get("explained_by", [])),
        evidence_title=get_text(front, "evidence_title") if "evidence_title" in front else "Measured",
        thresholds=thresholds,
        what_if=_what_if(front.get("what_if"), remedies),
        remedies=remedies,
        sql=sql,
        sections=_sections(document),
        examples=_examples(document.blocks),
        path=path,
    )


def _thresholds(table: object) -> dict[str, Threshold]:
    thresholds = {}
    for name, found in as_table(table, "thresholds").items():
        what = f"thresholds.{name}"
        entry = as_table(found, what)
        only_known(entry, ("value", "unit", "doc"), f"`{what}`")
        if not is_setting(entry.get("value")):
            raise FieldError(f"`{what}.value` must be a finite number within 64 bits, a text or a boolean")
        thresholds[name] = Threshold(
            entry["value"], get_text(entry, "unit", f"{what}."), get_text(entry, "doc", f"{what}.")
        )
    return thresholds


def _same_parameters(thresholds: Mapping[str, Threshold], sql: str) -> None:
    used = set(_PARAMETER.findall(_SQL_NOISE.sub(" ", sql)))
    if missing := sorted(used - thresholds.keys()):
        raise FieldError(
            f"the SQL uses ${missing[0]}, which [thresholds] does not declare; add it with value, unit and doc"
        )
    if unused := sorted(thresholds.keys() - used):
        raise FieldError(f"threshold {unused[0]!r} is not used by the SQL; remove it, or use it as ${unused[0]}")


def _causes(value: object) -> tuple[Cause, ...]:
    if not isinstance(value, list):
        raise FieldError("`explained_by` must be an array of tables; write `[[explained_by]]` above each")
    causes = []
    for number, found in enumerate(value):
        what = f"explained_by[{number}]."
        entry = as_table(found, what[:-1])
        only_known(entry, ("rule", "share", "because"), f"`{what[:-1]}`")
        share = get_choice({"share": get_text(entry, "share", what)}, "share", get_args(Share))
        causes.append(Cause(get_text(entry, "rule", what), share, get_text(entry, "because", what)))
    return tuple(causes)


def _what_if(value: object, known: Mapping[str, RemedyText]) -> WhatIf | None:
    if value is None:
        return None
    table = as_table(value, "what_if")
    only_known(table, ("edit", "events", "doubt", "remedies"), "`what_if`")
    edit: EditKind = get_choice(table, "edit", get_args(EditKind), None)
    if edit is None:
        raise FieldError(f"`what_if` lacks `edit`; it must be one of {', '.join(get_args(EditKind))}")
    doubt = table.get("doubt", 0.0)
    if isinstance(doubt, bool) or not isinstance(doubt, int | float) or not 0 <= doubt <= 1:
        raise FieldError(f"`what_if.doubt` is {doubt!r}; it must be a share, 0 to 1")
    remedies = as_table(table.get("remedies", {}), "what_if.remedies")
    for name in remedies:
        if name not in known:
            raise FieldError(f"`what_if.remedies` names {name!r}; add [remedies.{name}]{suggestion(name, known)}")
    kinds = {name: get_choice(remedies, name, get_args(EditKind)) for name in remedies}
    return WhatIf(edit, get_choice(table, "events", get_args(EventsOf), "kernels"), float(doubt), kinds)


def _remedies(value: object) -> dict[str, RemedyText]:
    remedies = {}
    for name, found in as_table(value, "remedies").items():
        what = f"remedies.{name}"
        entry = as_table(found, what)
        only_known(entry, ("text", "risk", "edit"), f"`{what}`")
        risk = get_text(entry, "risk", f"{what}.") if "risk" in entry else None
        edit = read_edit(as_table(entry["edit"], f"{what}.edit"), f"{what}.edit") if "edit" in entry else None
        remedies[name] = RemedyText(name, get_text(entry, "text", f"{what}."), risk, edit)
    return remedies


def _sql(blocks: Sequence[Block]) -> str:
    found = [block for block in blocks if block.info.split(" ")[0].lower() == "sql"]
    if len(found) != 1:
        raise FieldError(f"has {len(found)} blocks that begin with ```sql; it must have exactly one")
    return found[0].text


def _sections(document: Document) -> dict[str, str]:
    only_known(document.sections, SECTIONS, "the file")
    for title in SECTIONS:
        if not document.sections.get(title):
            raise FieldError(f"section `## {title}` is missing or empty; write it")
    return {title: document.sections[title] for title in SECTIONS}


def _examples(blocks: Sequence[Block]) -> tuple[Example, ...]:
    return tuple(_example(block) for block in blocks if block.section == "Examples" and block.info.startswith("toml"))


def _example(block: Block) -> Example:
    what = f"line {block.line}: the example"
    kind = _EXAMPLE.fullmatch(block.info)
    if not kind:
        raise FieldError(f"{what} must begin with ```toml good, or ```toml bad expect=N with N of 1 or more")
    content = parse_toml(block.text, what)
    facts = as_table(content.pop("facts", {}), f"{what}: facts")
    sources = as_table(content.pop("sources", {}), f"{what}: sources")
    findings = content.pop("finding", [])
    for name, rows in {**content, "finding": findings}.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise FieldError(f"{what}: `{name}` must be an array of tables; write `[[{name}]]` above each row")
    expect = int(kind[2] or 0)
    if len(findings) > expect:
        raise FieldError(f"{what} describes {len(findings)} findings but expects {expect}")
    tables = {name: tuple(rows) for name, rows in content.items()}
    return Example(block.lead, expect, tables, facts, sources, tuple(findings), block.line)
