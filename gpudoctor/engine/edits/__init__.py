"""Changes of the user's source that remedies declare: one module a kind, each a pure function of the syntax tree.

A change that is not certain is no change: every kind raises NotCertainError where it would have to guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from gpudoctor.engine.edits.kinds import KINDS, EditValue


class NotCertainError(ValueError):
    """The change cannot be made without guessing; the text says why."""


def apply_edit(kind: str, values: Mapping[str, EditValue], text: str, line: int) -> str:
    """Makes one edit.

    Args:
        kind: one of KINDS.
        values: what the kind's keys hold, all of them.
        text: the file's text, with its own line ends.
        line: 1-based line that the edit is about.

    Returns:
        The new text; lines that the edit does not touch are what they were, byte for byte. The same text where what
        the edit asks for is there already.

    Raises:
        NotCertainError: it cannot be made without guessing.
    """
    from gpudoctor.engine.edits.tree import edited

    if kind not in KINDS:
        raise NotCertainError(f"this gpudoctor knows no edit of the kind {kind!r}")
    change = import_module(f"gpudoctor.engine.edits.{kind}").change
    return edited(text, lambda source: change(source, line, values))
