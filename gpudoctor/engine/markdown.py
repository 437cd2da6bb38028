"""Splits a rule file into its front matter, sections and fenced blocks; knows nothing of what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_FENCE = re.compile(r"^(`{3,}|~{3,})[ \t]*(.*?)[ \t]*$")
_HEADING = re.compile(r"^##[ \t]+(.+?)[ \t#]*$")


class MarkdownError(ValueError):
    """The file is not laid out as a rule file; the text says where and what to do."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its info string, text, section (None above the first), line, and the paragraph above it."""

    info: str
    text: str
    section: str | None
    line: int
    lead: str


@dataclass(frozen=True, slots=True)
class Document:
    """A rule file in pieces: TOML front matter, text by section title, fenced blocks in order."""

    front: str
    sections: Mapping[str, str]
    blocks: tuple[Block, ...]


def split(text: str) -> Document:
    """Splits a rule file.

    Raises:
        MarkdownError: no front matter, a fence that is not closed, or a section that occurs twice.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "+++":
        raise MarkdownError("must begin with a line `+++`, TOML front matter and another line `+++`")
    end = next((i for i, line in enumerate(lines) if i and line.rstrip() == "+++"), None)
    if end is None:
        raise MarkdownError("the front matter has no closing line `+++`; add it above the SQL block")
    sections: dict[str, list[str]] = {}
    blocks: list[Block] = []
    section: str | None = None
    paragraph: list[str] = []
    at = end + 1
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            close = _closing(lines, at, fence[1])
            body = "\n".join(lines[at + 1 : close])
            blocks.append(Block(fence[2], body, section, at + 1, " ".join(paragraph)))
            paragraph = []
            if section is not None:
                sections[section] += lines[at : close + 1]
            at = close + 1
            continue
        if heading := _HEADING.match(line):
            section = heading[1]
            if section in sections:
                raise MarkdownError(f"line {at + 1}: section {section!r} occurs twice; join the two")
            sections[section] = []
            paragraph = []
        else:
            paragraph = [*paragraph, line.strip()] if line.strip() else []
            if section is not None:
                sections[section].append(line)
        at += 1
    texts = {title: "\n".join(body).strip() for title, body in sections.items()}
    return Document("\n".join(lines[1:end]), texts, tuple(blocks))


def _closing(lines: list[str], start: int, fence: str) -> int:
    for at in range(start + 1, len(lines)):
        stripped = lines[at].strip()
        if stripped and set(stripped) == {fence[0]} and len(stripped) >= len(fence):
            return at
    raise MarkdownError(f"line {start + 1}: the block that begins here is not closed; end it with {fence}")
