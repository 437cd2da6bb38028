"""Reads a stretch of a trace event by event, where it does not decode at once: damage, the list's end, the file's end.

What is decided about an event depends on the text alone, not on where a block of it happened to end: more text is asked
for until the decision is certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpudoctor.ingest.kineto import records, repair
from gpudoctor.ingest.kineto.records import Event

MAX_EVENT_BYTES = 32 << 20  # an event that has not ended by then is damaged
_LOOK_AHEAD_BYTES = 64 << 10  # enough to tell the list's end from a stray bracket: metadata has kilobytes
_MAX_ENDS = 8  # ends that are tried for a damaged event, before the next one begins
_MAX_STARTS = 64  # objects looked at that could be the next event
_REPAIR_BYTES = 1 << 20  # a damaged event that is longer is left out without trying
_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
_END = re.compile(rb"\}(?=\s*(?:,\s*\{|\]))")
_START = re.compile(rb'\{\s*"(?:ph|cat|name|args|pid|tid|ts|dur|s|id|bp)"\s*:')
_LAST = re.compile(rb"\}[\s,]*\]")
_FIRST = re.compile(rb'\{\s*"ph"\s*:')
_KEY = re.compile(rb'"\s*:\s*\Z')
_BEGIN = re.compile(rb"[{\]]")
_GAP = re.compile(rb"[\s,]*")
_POSITION = re.compile(r"byte (\d+)")
ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises on text that is no event."""


@dataclass(slots=True)
class Damage:
    """What could not be read as it stands.

    Attributes:
        bad: events left out.
        repaired: events (or the metadata) that were readable after a repair.
        truncated: the file ends inside its list of events; with what was lost at the end, in bytes.
        lost_bytes: text at the end that is no whole event.
        extra_bytes: text after the trace's end (a second document).
        cut: why the bytes end early (damaged gzip data).
        no_header: the metadata could not be read.
    """

    bad: int = 0
    repaired: int = 0
    truncated: bool = False
    lost_bytes: int = 0
    extra_bytes: int = 0
    cut: str | None = None
    no_header: bool = False


class Buffer:
    """Text that is being read, and the means to get more of it.

    Attributes:
        text: what is there and not used up yet.
        ended: nothing follows it.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.text = b""
        self.ended = False

    def fill(self, size: int) -> None:
        """Reads on until `text` has `size` bytes, or the file ends."""
        parts, length = [self.text], len(self.text)
        while length < size and not self.ended:
            piece = next(self._pieces, None)
            self.ended = piece is None
            parts.append(piece or b"")
            length += len(parts[-1])
        if len(parts) > 1:
            self.text = b"".join(parts)

    def rest(self) -> Iterator[bytes]:
        """What was not read yet, in pieces."""
        yield from self._pieces
        self.ended = True


@dataclass(slots=True)
class Salvage:
    """Takes events one by one from a buffer.

    Attributes:
        buffer: where the text comes from.
        damage: where losses are counted.
        bare_list: the trace is a list, not an object with one.
        patience: bytes that may still be read in search of the end of events that have none.
    """

    buffer: Buffer
    damage: Damage
    bare_list: bool
    patience: int = 4 * MAX_EVENT_BYTES
    _hurt: bool = field(default=False)

    def events(self, size: int) -> tuple[list[Event], bool]:
        """The events that begin in the next `size` bytes, which are used up; whether the list ended with them."""
        made: list[Event] = []
        at = 0
        while True:
            at = _between(self.buffer.text, at)
            if at >= min(size, len(self.buffer.text)):
                break
            if self.buffer.text[at] == _CLOSE:
                if self._is_end(at):
                    self.buffer.text = self.buffer.text[at + 1 :]
                    return made, True
                self._lost()
                at += 1
            elif self.buffer.text[at] == _OPEN:
                event, end = self._event(at)
                if end is None:
                    self._truncated(at)
                    return made, True
                if event is not None:
                    made.append(event)
                at = end
            else:
                self._lost()
                found = _BEGIN.search(self.buffer.text, at + 1)
                at = found.start() if found else len(self.buffer.text)
        self.buffer.text = self.buffer.text[at:]
        return made, False

    def _lost(self) -> None:
        """Counts one loss for a run of text that is no event."""
        self.damage.bad += not self._hurt
        self._hurt = True

    def _truncated(self, at: int) -> None:
        self.damage.truncated = True
        self.damage.lost_bytes = len(self.buffer.text[at:].strip())
        self.buffer.text = b""

    def _event(self, at: int) -> tuple[Event | None, int | None]:
        """The event at a place, None when it is lost, and where to go on; no place when the file ends inside it."""
        event, end = self._whole(at)
        if end is not None:
            if event is None or (self._hurt and not is_event(event)):  # the rest of what was lost
                self._lost()
                return None, end
            self._hurt = False
            return event, end
        limit = min(MAX_EVENT_BYTES, max(_LOOK_AHEAD_BYTES, self.patience))
        size = _LOOK_AHEAD_BYTES
        self.buffer.fill(at + size)
        near = self._near(at, min(len(self.buffer.text), at + size))
        if near is not None and (repaired := self._repaired(at, near)):
            return repaired
        while True:
            self.buffer.fill(at + size)
            in_sight = min(len(self.buffer.text), at + size)
            stop = self._next_event(at, in_sight)
            last = self.buffer.ended and in_sight == len(self.buffer.text)
            if stop is None and last and self._open_end(at):
                return None, None
            list_end = self._list_end(at, in_sight if stop is None else stop)
            stop = stop if list_end is None else list_end
            if stop is not None or last or size >= limit:
                break
            size *= 4
        self.patience -= size
        stop = in_sight if stop is None else stop
        if repaired := self._repaired(at, stop):
            return repaired
        self.damage.bad += max(1, len(_FIRST.findall(self.buffer.text, at, stop)))
        self._hurt = True
        return None, stop

    def _whole(self, at: int) -> tuple[Event | None, int | None]:
        """The undamaged event at a place and its end; no end when it is damaged, or does not end."""
        match = _BORDER.search(self.buffer.text, at, at + _LOOK_AHEAD_BYTES)
        if match:
            try:
                return records.decode(self.buffer.text[at : match.start() + 1]), match.start() + 1
            except ERRORS as error:
                if not (_runs_on(error, match.start() + 1 - at) or trailing(error)):
                    return None, None
        size = _LOOK_AHEAD_BYTES
        limit = min(MAX_EVENT_BYTES, max(_LOOK_AHEAD_BYTES, self.patience))
        while True:
            self.buffer.fill(at + size)
            end = at + len(self.buffer.text[at : at + size].rstrip())
            try:
                return records.decode(memoryview(self.buffer.text)[at:end]), end
            except ERRORS as error:
                if (stop := trailing(error)) is not None:
                    end = at + len(self.buffer.text[at : at + stop].rstrip())
                    return records.decode(self.buffer.text[at:end]), end
                if not _runs_on(error, end - at) or size >= limit or at + size >= len(self.buffer.text):
                    return None, None
                size *= 4

    def _next_event(self, at: int, limit: int) -> int | None:
        """Where the first event after the one at `at` begins; None when that is not in sight."""
        for tried, match in enumerate(_START.finditer(self.buffer.text, at + 1, limit)):
            event, _ = self._whole(match.start())
            if tried > _MAX_STARTS or (event is not None and is_event(event)):
                return match.start()
        return None

    def _near(self, at: int, limit: int) -> int | None:
        """Where the first object after `at` begins that could be an event and is no member's value."""
        text = self.buffer.text
        for match in _START.finditer(text, at + 1, limit):
            if not _KEY.search(text, max(at, match.start() - 64), match.start()):
                return match.start()
        return None

    def _list_end(self, at: int, limit: int) -> int | None:
        """Where the list ends before `limit`; None when it does not."""
        text = self.buffer.text
        for match in _LAST.finditer(text, at, limit):
            if self._is_end(match.end() - 1):
                return match.end() - 1
        return None

    def _open_end(self, at: int) -> bool:
        """Whether the event at a place looks sound as far as the file goes."""
        try:
            records.decode(memoryview(self.buffer.text)[at:])
        except ERRORS as error:
            return _runs_on(error, len(self.buffer.text) - at)
        return False

    def _repaired(self, at: int, stop: int) -> tuple[Event, int] | None:
        """The damaged event between two places, repaired and counted, and its end."""
        text = self.buffer.text
        ends = [match.end() for _, match in zip(range(_MAX_ENDS), _END.finditer(text, at, stop), strict=False)]
        ends.append(at + len(text[at:stop].rstrip(b", \t\r\n")))
        for end in ends:
            if end - at > _REPAIR_BYTES:
                break
            piece = repair.repaired(text[at:end])
            for attempt in (piece, repair.requoted(piece)):
                try:
                    event = records.decode(attempt)
                except ERRORS:
                    continue
                if event is not None and is_event(event):
                    self.damage.repaired += 1
                    self._hurt = False
                    return event, end
        return None

    def _is_end(self, at: int) -> bool:
        """Whether the bracket at a place ends the list of events: what follows is the trace's rest, and no event."""
        self.buffer.fill(at + _LOOK_AHEAD_BYTES)
        rest = self.buffer.text[at + 1 : at + _LOOK_AHEAD_BYTES].lstrip()
        if self.bare_list:
            return self._is_behind(rest)
        if not rest.startswith(b","):
            return not rest or (rest.startswith(b"}") and self._is_behind(rest[1:].lstrip()))
        members = rest[1:].lstrip()
        if not members.startswith(b'"'):
            return not members
        try:
            msgspec.json.decode(b"{" + members, type=dict[str, Any])
        except ERRORS as error:
            if (stop := trailing(error)) is not None:
                return self._is_behind(members[stop - 1 :])
            return _runs_on(error, len(members) + 1) or not self._has_event(members)
        return True

    def _is_behind(self, text: bytes) -> bool:
        """Whether text can stand behind a trace: nothing, another document, or what has no events in it."""
        while text := text.lstrip(b"\0 \t\r\n"):  # a file's last page may be padded
            if text.startswith((b",", b"}", b"]")):  # the rest of an event
                return False
            if not text.startswith((b"{", b"[")):
                return not self._has_event(text)
            stop = len(text)
            try:
                msgspec.json.decode(text)
            except ERRORS as error:
                after = trailing(error)
                if after is None:
                    return _runs_on(error, len(text)) or not self._has_event(text)
                stop = after
            if text.startswith(b"{") and self._is_start(0, text):
                return False
            text = text[stop:]
        return True

    def _has_event(self, text: bytes) -> bool:
        return any(self._is_start(match.start(), text) for match in _START.finditer(text))

    @staticmethod
    def _is_start(at: int, text: bytes) -> bool:
        """Whether an event begins at a place."""
        try:
            event = records.decode(memoryview(text)[at:])
        except ERRORS as error:
            stop = trailing(error)
            if stop is None:
                return False
            event = records.decode(text[at : at + stop].rstrip())
        return event is not None and is_event(event)


_OPEN, _CLOSE = b"{]"


def is_event(event: Event) -> bool:
    """Whether a decoded object is an event: it has a phase or a duration."""
    return bool(event.ph) or event.dur != records.NOTHING


def _between(text: bytes, at: int) -> int:
    """Where the next thing begins: commas and white space skipped."""
    match = _GAP.match(text, at)
    return match.end() if match else at


def trailing(error: Exception) -> int | None:
    """Where the text begins that follows a whole document; None for another error."""
    text = str(error)
    if "trailing characters" not in text:
        return None
    match = _POSITION.search(text)
    return int(match[1]) - 1 if match else None  # it counts from 1


def _runs_on(error: Exception, size: int) -> bool:
    """Whether a text of that size is sound but ends early; a number may be cut in the middle."""
    text = str(error)
    if "truncated" in text:
        return True
    match = _POSITION.search(text)
    return match is not None and "malformed" in text and "trailing" not in text and int(match[1]) >= size
