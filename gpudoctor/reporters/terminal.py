"""Paragraphs on a terminal: wrapped to a width, with hanging indents, in colour or without, in any encoding."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from gpudoctor.reporters.wording import glued

NARROWEST = 24
"""Columns below which indents and columns make no sense any more; narrower windows wrap by themselves."""

_GLUE = "\ue000"
"""Stands for a space that no line is broken at while a paragraph is wrapped (rich breaks at no-break spaces too)."""

_ASCII = str.maketrans(
    {"≤": "<=", "≈": "~", "±": "+-", "µ": "u", "·": "-", "█": "#", "…": "...", "\u202f": " ", "×": "x"}
)
"""For an encoding that lacks these characters."""


class Paper:
    """Takes paragraphs and keeps them as text of a fixed width."""

    def __init__(self, width: int, color: bool) -> None:
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer,
            width=max(NARROWEST, width),
            color_system="standard" if color else None,
            force_terminal=color,
            no_color=not color,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )

    @property
    def width(self) -> int:
        """Columns that no line exceeds."""
        return self._console.width

    @property
    def text(self) -> str:
        """Everything written so far."""
        return self._buffer.getvalue()

    def gap(self) -> None:
        """An empty line."""
        self._buffer.write("\n")

    def line(self, text: Text, indent: int = 0, hang: int = 0) -> None:
        """One paragraph: its first line at `indent`, the others `hang` columns further in."""
        width = self.width - indent
        hang = min(hang, width // 3)
        text.plain = glued(text.plain, _GLUE)
        parts = list(text.wrap(self._console, width, overflow="fold")) or [Text()]
        if len(parts) > 1:
            first, rest = text.divide([len(parts[0].plain)])
            while rest.plain.startswith(" "):
                rest = rest[1:]
            parts = [first, *rest.wrap(self._console, width - hang, overflow="fold")]
        for number, part in enumerate(parts):
            part.rstrip()
            part.plain = part.plain.replace(_GLUE, " ")
            column = indent + hang if number else indent
            self._console.print(Text(" " * column).append_text(part), soft_wrap=True)


def encodable(text: str, encoding: str) -> str:
    """The text with what an encoding lacks replaced: by its ASCII spelling where there is one."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text
