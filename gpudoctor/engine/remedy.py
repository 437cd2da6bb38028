"""Writes a rule's remedy as a unified diff of the user's file, where the change is certain.

The change is made on the concrete syntax tree, so everything else in the file stays byte for byte what it was, and the
diff applies with `git apply` or `patch -p1`. Whatever leaves a doubt gives no diff: the remedy is its text then.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from gpudoctor.engine.edits import NotCertainError, apply_edit
from gpudoctor.engine.edits.kinds import EditValue


def make_diff(kind: str, values: Mapping[str, EditValue], path: str, text: str, *lines: int) -> str | None:
    """One edit as a unified diff; of several lines, all must be certain.

    Args:
        kind: one of the kinds of edits.
        values: what the kind's keys hold.
        path: path of the file, relative to where the diff will be applied.
        text: the file's text, with its own line ends.
        lines: 1-based lines that the edit is about.

    Returns:
        The diff with `a/` and `b/` prefixes; None where the change is not certain or changes nothing.
    """
    if not inside(path):
        return None
    try:
        after = text
        for line in sorted(lines, reverse=True):  # from below, so that the lines above stay where they are
            after = apply_edit(kind, values, after, line)
        return unified(path, text, after)
    except NotCertainError:
        return None


def inside(path: str) -> bool:
    """Whether a path as a recording has it names a file below the working folder."""
    pure = PurePosixPath(path.replace("\\", "/"))
    strange = re.match(r"[A-Za-z]:|cell ", path) or not path.strip() or any(ord(c) < 32 or ord(c) == 127 for c in path)
    return not (pure.is_absolute() or ".." in pure.parts or strange)


def unified(path: str, before: str, after: str) -> str | None:
    """The difference of two texts of a file, as `git apply` and `patch -p1` take it; None when there is none."""
    from gpudoctor.engine.edits.tree import lines

    if before == after:
        return None
    name = str(PurePosixPath(path.replace("\\", "/")))
    name = f"{name}\t" if " " in name else name  # git and patch read a name with blanks up to the tab
    parts = difflib.unified_diff(lines(before), lines(after), f"a/{name}", f"b/{name}", lineterm="\n")
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)
