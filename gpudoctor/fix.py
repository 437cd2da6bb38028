"""Which certain remedies of a diagnosis can be applied to the files as they are now, and what becomes of each file.

Pure: takes the texts of the files and gives texts. `patching.py` reads and writes them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from gpudoctor.diagnosis import Change, Diagnosis, Finding
from gpudoctor.engine.editing import digest
from gpudoctor.engine.edits import NotCertainError, apply_edit
from gpudoctor.engine.remedy import unified
from gpudoctor.engine.rule import Rule
from gpudoctor.fixable import Read, change_of, why_not


@dataclass(frozen=True, slots=True)
class Left:
    """A finding that is not fixed, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True, slots=True)
class Stale:
    """A file that is not what was recorded, so that lines of the diagnosis may mean others: what is wrong with it."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Patch:
    """One file before and after, the findings whose remedies it holds, and the difference."""

    file: str
    before: str
    after: str
    findings: tuple[Finding, ...]

    @property
    def diff(self) -> str:
        """As `git apply` takes it."""
        return unified(self.file, self.before, self.after) or ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `gpudoctor fix` would do."""

    patches: tuple[Patch, ...]
    left: tuple[Left, ...]
    stale: tuple[Stale, ...]


def plan(
    diagnosis: Diagnosis,
    rules: Iterable[Rule],
    read: Callable[[str], Read],
    *,
    chosen: Callable[[Finding], bool] = lambda finding: True,
    previews: bool = False,
) -> Plan:
    """Makes the edits of all findings, one after the other on the text that the last one left.

    The edits are the rules'; the diagnosis only says which of them, on which lines, and what a column filled in.

    Args:
        diagnosis: its findings in their order: where two remedies disagree, the first one holds.
        rules: all known rules.
        read: a file as it is now, by the name that the diagnosis has for it.
        chosen: which findings are asked for; the others are not spoken of.
        previews: fixes of preview rules are made as well.

    Raises:
        InputError: the diagnosis holds a change that its rule does not make.
    """
    by_id = {rule.id: rule for rule in rules}
    left: list[Left] = []
    stale: dict[str, Stale] = {}
    by_file: dict[Hashable, _File] = {}
    seen: dict[str, Read] = {}
    for finding in filter(chosen, diagnosis.findings):
        rule = by_id.get(finding.rule)
        change = change_of(finding, rule)
        reason = why_not(finding, rule, change, previews, read)
        if reason is not None or change is None:
            left.append(Left(finding, reason or ""))
            continue
        now = seen[change.file] if change.file in seen else seen.setdefault(change.file, read(change.file))
        if now.text is None or digest(now.text) != change.sha256:
            stale[change.file] = Stale(change.file, now.reason or "is not what was recorded")
            left.append(Left(finding, stale[change.file].reason))
            continue
        file = by_file.setdefault(now.identity, _File(now.name, now.text))
        if (reason := file.add(finding, change)) is not None:
            left.append(Left(finding, reason))
    patches = [
        Patch(file.name, file.before, file.text, tuple(finding for finding, _ in file.made))
        for file in sorted(by_file.values(), key=lambda file: file.name)
        if file.text != file.before
    ]
    return Plan(tuple(patches), tuple(left), tuple(stale.values()))


class _File:
    """A file while edits are made on it, one on top of the other."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.before = text
        self.text = text
        self.made: list[tuple[Finding, Change]] = []

    def add(self, finding: Finding, change: Change) -> str | None:
        """Makes one more edit; why it is not made, or None."""
        try:
            text = _made(change, self.text, self.before)
        except NotCertainError as error:
            return f"the change is not certain any more: {error}" if self.made else f"no certain change: {error}"
        if text != self.text and self._undoes(text):
            return "another fix says otherwise about the same lines"
        self.text = text
        self.made.append((finding, change))
        return None

    def _undoes(self, text: str) -> bool:
        """Whether an edit made before would be made again on this text: then it is not there any more."""
        was, now = self.text, text
        return any(_again(made, was, self.before) != _again(made, now, self.before) for _, made in self.made)


def _again(change: Change, text: str, before: str) -> bool:
    """Whether an edit still has something to do."""
    try:
        return _made(change, text, before) != text
    except NotCertainError:
        return False


def _made(change: Change, text: str, before: str) -> str:
    """A text with one more edit; `before` is the text whose lines the edit names."""
    for line in (change.line, *change.also):
        place = moved(before, text, line)
        if place is None:
            raise NotCertainError("another fix changes the same lines; apply that one and check again")
        text = apply_edit(change.kind, change.values, text, place)
    return text


def moved(before: str, after: str, line: int) -> int | None:
    """Where a line of `before` is in `after`; None when it is gone.

    A line keeps its place among its neighbours when it is changed or indented, so lines are matched without their
    indentation, and a run of changed lines is matched one by one when it did not grow.
    """
    old, new = ([row.strip() for row in _rows(text)] for text in (before, after))
    at = line - 1
    for tag, first, last, begin, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if first <= at < last:
            same = tag == "equal" or (tag == "replace" and last - first == end - begin)
            return begin + at - first + 1 if same else None
    return None


def _rows(text: str) -> Iterable[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def counted(patches: Iterable[Patch]) -> Mapping[str, int]:
    """Findings that patches fix, by rule."""
    counts: dict[str, int] = {}
    for patch in patches:
        for finding in patch.findings:
            counts[finding.rule] = counts.get(finding.rule, 0) + 1
    return dict(sorted(counts.items()))
