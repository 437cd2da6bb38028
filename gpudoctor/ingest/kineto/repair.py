"""Makes a damaged event readable where what is meant is certain; the event counts as repaired.

Seen in files that real jobs write: `inf`, `nan` and numbers beyond any float, names with quotes or backslashes that
nobody escaped, bytes that are no UTF-8, control characters in names, a comma after the last member.
"""

from __future__ import annotations

import re

_NO_NUMBER = re.compile(rb"(?<=[:,\[])(\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_TRAILING_COMMA = re.compile(rb",(\s*[}\]])")
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_HUGE_NUMBER = re.compile(rb"(?<=[:,\[])(\s*)-?\d[\d.]*(?:[eE]\+?\d{3,}|(?<=\d{300}))(?=\s*[,}\]])")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_MEMBER = re.compile(rb'("(?:[^"\\]|\\.)*"\s*:\s*")(.*?)("\s*(?:,\s*"(?:[^"\\]|\\.)*"\s*:|\}))', re.DOTALL)
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def repaired(text: bytes) -> bytes:
    """The event's text with the known kinds of damage taken out; still unreadable when it is another kind."""
    text = text.decode("utf-8", "replace").encode()
    text = _BAD_ESCAPE.sub(rb"\\\\", text)
    text = _CONTROL.sub(b" ", text)
    text = _NO_NUMBER.sub(rb"\1null", text)
    text = _HUGE_NUMBER.sub(rb"\1null", text)
    return _TRAILING_COMMA.sub(rb"\1", text)


def requoted(text: bytes) -> bytes:
    """The event's text with quotes inside string values escaped: a value ends where a member or the object follows."""
    made, at = [], 0
    while match := _MEMBER.search(text, at):
        made += [text[at : match.start()], match[1], _BARE_QUOTE.sub(rb'\\"', match[2])]
        at = match.start(3)
        made.append(b'"')
        at += 1
    return b"".join([*made, text[at:]])
