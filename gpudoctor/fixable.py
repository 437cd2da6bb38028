"""What can be changed about one finding: its edit made again from the rule, or the reason why nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from gpudoctor.diagnosis import Change, Finding
from gpudoctor.engine.editing import aimed, refilled, templates
from gpudoctor.engine.edits import NotCertainError, apply_edit
from gpudoctor.engine.remedy import inside
from gpudoctor.engine.rule import Edit, RemedyText, Rule
from gpudoctor.errors import InputError
from gpudoctor.notebooks import PREFIX


@dataclass(frozen=True, slots=True)
class Read:
    """A file as it was read.

    Attributes:
        name: the real file's name relative to the folder, links followed.
        identity: equal for two names of one file.
        text: what it holds; None when that cannot be told.
        reason: why not.
    """

    name: str
    identity: Hashable
    text: str | None
    reason: str | None = None


def remedy_of(finding: Finding, rule: Rule | None) -> RemedyText | None:
    """What the rule says about the remedy that a finding names."""
    return rule.remedies.get(finding.remedy.name) if rule is not None and finding.remedy is not None else None


def change_of(finding: Finding, rule: Rule | None) -> Change | None:
    """A finding's change, with the edit made of the rule; None without a change or a rule.

    Raises:
        InputError: it is not a change that the rule makes.
    """
    change = finding.remedy.change if finding.remedy is not None else None
    if change is None or rule is None:
        return None
    remedy = remedy_of(finding, rule)
    edit = remedy.edit if remedy is not None else None
    values = refilled(edit, change.values) if edit is not None else None
    target = aimed(edit, (finding.where, *finding.locations)) if edit is not None else None
    if edit is None or values is None or change.kind != edit.kind or target != (change.file, change.line, change.also):
        raise InputError(
            f"the diagnosis holds a fix of {rule.id} that this rule does not make: it was changed, or made by another "
            "version or with other rules; run `gpudoctor check` again"
        )
    return replace(change, values=values)


def why_not(
    finding: Finding, rule: Rule | None, change: Change | None, previews: bool, read: Callable[[str], Read]
) -> str | None:
    """Why nothing is changed about a finding; None when its change can be tried.

    Args:
        finding: the finding.
        rule: its rule; None when there is no such rule.
        change: what `change_of` made.
        previews: fixes of preview rules are made as well.
        read: a file as it is now, by the name that the diagnosis has for it.
    """
    if finding.accepted is not None:
        return f"accepted: {finding.accepted}"
    if rule is None:
        return "this gpudoctor has no such rule"
    if rule.status == "preview" and not previews:
        return "the rule is a preview; `--preview` applies its fixes as well"
    if change is not None:
        return _out_of_reach(change.file)
    return _why_no_change(finding, rule, read)


def _why_no_change(finding: Finding, rule: Rule, read: Callable[[str], Read]) -> str:
    """Why a finding came without a change."""
    explain = f"`gpudoctor explain {rule.id}` and the report say what to do"
    remedy = remedy_of(finding, rule)
    if remedy is None or remedy.edit is None:
        return f"its fix takes a decision of yours; {explain}"
    target = aimed(remedy.edit, (finding.where, *finding.locations))
    if target is None:
        return f"the line to change is not known for certain; {explain}"
    file, line, _ = target
    return _out_of_reach(file) or f"no certain change: {_doubt(remedy.edit, read(file), line)}; {explain}"


def _out_of_reach(file: str) -> str | None:
    if file.startswith(PREFIX):
        return "it is in a cell of a notebook; make the change there"
    return None if inside(file) else "the file lies outside of the working folder"


def _doubt(edit: Edit, now: Read, line: int) -> str:
    """Why no change was offered, as far as the file still tells."""
    if now.text is None:
        return f"the file {now.reason}"
    if any("{" in text for _, text in templates(edit)):
        return "not with what this run measured"
    try:
        apply_edit(edit.kind, edit.values, now.text, line)
    except NotCertainError as error:
        return str(error)
    return "not with what this run measured"
