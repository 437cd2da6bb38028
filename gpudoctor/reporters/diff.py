"""Lines of a unified diff by what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpudoctor.reporters.wording import code_line

Kind = Literal["add", "del", "same", "hunk", "file"]
_KINDS: dict[str, Kind] = {"+": "add", "-": "del", "@": "hunk"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line: its kind, and its text with the sign in front, as a diff has it."""

    kind: Kind
    text: str


def parse(diff: str) -> tuple[DiffLine, ...]:
    """The lines in order; a pair of `---` and `+++` lines becomes one line with the file's name."""
    lines = diff.replace("\r\n", "\n").removesuffix("\n").split("\n") if diff else []
    parsed = []
    index = 0
    while index < len(lines):
        line, following = lines[index], lines[index + 1] if index + 1 < len(lines) else ""
        if line.startswith("--- ") and following.startswith("+++ "):
            prefixed = line.startswith("--- a/") and following.startswith("+++ b/")
            parsed.append(DiffLine("file", code_line(following[6 if prefixed else 4 :])))
            index += 2
            continue
        parsed.append(DiffLine(_KINDS.get(line[:1], "same"), code_line(line)))
        index += 1
    return tuple(parsed)


def changes(diff: str) -> list[str]:
    """The added and removed lines alone, moved left by the indentation that they share."""
    lines = [line for line in parse(diff) if line.kind in ("add", "del")]
    bodies = [line.text[1:].expandtabs(4) for line in lines]
    shared = min((len(body) - len(body.lstrip(" ")) for body in bodies if body.strip()), default=0)
    return [f"{line.text[0]} {body[shared:]}" for line, body in zip(lines, bodies, strict=True)]
