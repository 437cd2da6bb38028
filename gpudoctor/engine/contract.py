"""Checks a rule's texts, and its tables against the Profile's: what needs Jinja and pandas loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.config import suggestion
from gpudoctor.engine.editing import templates
from gpudoctor.engine.messages import check
from gpudoctor.engine.rule import Example, Rule
from gpudoctor.errors import RuleError
from gpudoctor.profile import TABLES, Profile, frame


def check_tables(rule: Rule) -> None:
    """Checks that the tables a rule and its examples name exist.

    Raises:
        RuleError: naming the table or column that does not, with the closest that does.
    """
    for key, names in (("requires", rule.requires), ("optional", rule.optional)):
        for name in names:
            if name not in TABLES:
                hint = suggestion(name, TABLES) or f"; the tables are {', '.join(TABLES)}"
                raise RuleError(f"{rule.path}: `{key}` names table {name!r}, which does not exist{hint}")
    for name in rule.instead:
        if name not in rule.tables:
            raise RuleError(f"{rule.path}: `instead` names table {name!r}; name it in `requires` or `optional` as well")
    if twice := set(rule.requires) & set(rule.optional):
        raise RuleError(f"{rule.path}: {sorted(twice)[0]!r} is in both `requires` and `optional`; name it once")
    for example in rule.examples:
        for name, rows in example.tables.items():
            at = f"{rule.path}: line {example.line}: the example"
            if name not in rule.tables:
                hint = suggestion(name, rule.tables) or f"; it reads {', '.join(rule.tables)}"
                raise RuleError(f"{at} fills table {name!r}, which the rule does not read{hint}")
            for row in rows:
                _check_columns(name, row, at)


def check_texts(rule: Rule) -> None:
    """Checks that the message and the remedies are made of what texts of rules may be made of.

    Raises:
        RuleError: naming the text and the construct.
    """
    check(rule.message, f"{rule.path}: ## Message")
    for name, remedy in rule.remedies.items():
        check(remedy.text, f"{rule.path}: remedies.{name}.text")
        for key, text in templates(remedy.edit) if remedy.edit else ():
            check(text, f"{rule.path}: remedies.{name}.edit.{key}")


def example_profile(rule: Rule, example: Example) -> Profile:
    """The profile that an example describes: all tables of the rule are measured, some of them empty."""
    tables = {name: frame(name, example.tables.get(name, ())) for name in rule.tables}
    return Profile(tables, facts=example.facts, sources=example.sources)


def _check_columns(table: str, row: Mapping[str, Any], at: str) -> None:
    names = TABLES[table].names
    for column in row:
        if column not in names:
            hint = suggestion(column, names) or f"; it has {', '.join(names)}"
            raise RuleError(f"{at}: table {table!r} has no column {column!r}{hint}")
