"""Cuts the text of a trace into blocks of whole events and decodes them, with bounded memory and nothing readable lost.

A block ends at the last place in it that looks like the border between two events. A block that does not decode at
once (a wrong guess, the end of the list, damage) is taken apart event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from gpudoctor.errors import InputError
from gpudoctor.ingest.kineto import records, repair
from gpudoctor.ingest.kineto.records import Event
from gpudoctor.ingest.kineto.source import Source

BLOCK_BYTES = 4 << 20
MAX_HEADER_BYTES = 64 << 20  # metadata before the events; recorded ones have kilobytes
MAX_TRAILER_BYTES = 64 << 20
MAX_EVENT_BYTES = 8 << 20  # an event that did not end by then is damaged
_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_END = re.compile(rb'\}(?=\s*(?:,\s*\{|\]\s*(?:,\s*"|\}|$)))')
_BEGIN = re.compile(rb"[{\]]")
_GAP = re.compile(rb"[\s,]*")
_POSITION = re.compile(r"byte (\d+)")
_SPACE = b" \t\r\n"


@dataclass(slots=True)
class Damage:
    """What could not be read as it stands.

    Attributes:
        bad: events left out.
        repaired: events that were readable after a repair.
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


@dataclass(slots=True)
class _Part:
    """What a stretch of text held.

    Attributes:
        events: its events.
        after: the text behind the list's end, when that lies in it.
        open: the beginning of an event that ends later.
    """

    events: list[Event]
    after: bytes | None = None
    open: bytes = b""


class Blocks:
    """Iterates over lists of decoded events of one file.

    Attributes:
        metadata: members of the trace beside its events; complete only when the iteration has ended.
        damage: what was lost, likewise.
    """

    def __init__(self, source: Source, block_bytes: int = BLOCK_BYTES) -> None:
        self._source, self._size = source, block_bytes
        self._pieces = iter(source)
        self._ended = False
        self._bare_list = False
        self.metadata: dict[str, Any] = {}
        self.damage = Damage()

    def __iter__(self) -> Iterator[list[Event]]:
        """Lists of events in the file's order.

        Raises:
            InputError: the file is no trace.
        """
        text = self._header()
        while True:
            text = self._filled(text, self._size)
            whole, text = self._cut(text)
            part = self._decoded(whole)
            if part.events:
                yield part.events
            if part.after is not None:
                self._trailer(part.after + text)
                break
            if part.open and text:
                text = part.open + b"," + text
            elif part.open or (self._ended and not text.strip(_SPACE)):
                self.damage.truncated = True
                self.damage.lost_bytes = len(part.open.strip(_SPACE))
                break
        self.damage.cut = self._source.cut

    # -- the text ------------------------------------------------------------------------------------------------

    def _filled(self, text: bytes, size: int) -> bytes:
        """`text` and what follows it, until it has `size` bytes or the file ends."""
        parts, length = [text], len(text)
        while length < size and not self._ended:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            parts.append(piece)
            length += len(piece)
        return b"".join(parts)

    def _header(self) -> bytes:
        """Reads up to the first event; the text from there on."""
        text = b""
        size = 1 << 16
        while True:
            text = self._filled(text, size)
            start = text.lstrip(_SPACE)
            if start.startswith(b"["):
                self._bare_list = True
                return start[1:]
            if start and not start.startswith(b"{"):
                raise InputError(f"{self._source.path}: not a Kineto trace: it does not begin like JSON")
            if found := _EVENTS.search(text):
                self._read_header(text[: found.start()])
                return text[found.end() :]
            if self._ended or len(text) > MAX_HEADER_BYTES:
                break
            size *= 4
        if not text.strip(_SPACE):
            raise InputError(f"{self._source.path}: the file is empty")
        raise InputError(f"{self._source.path}: not a Kineto trace: its JSON has no traceEvents")

    def _read_header(self, text: bytes) -> None:
        text = text.rstrip(_SPACE).removesuffix(b",")
        self._read_members(text + b"}")

    def _read_members(self, text: bytes) -> int:
        """Adds an object's members to the metadata; the number of bytes that follow the object."""
        for attempt in (text, repair.repaired(text), repair.requoted(repair.repaired(text))):
            try:
                self.metadata |= msgspec.json.decode(attempt, type=dict[str, Any])
            except msgspec.ValidationError:
                break
            except msgspec.DecodeError as error:
                end = _trailing(error)
                if end is not None and end < len(attempt):
                    self._read_members(attempt[:end])
                    return len(attempt[end:].strip(_SPACE))
            else:
                return 0
        self.damage.no_header = True
        return 0

    def _trailer(self, text: bytes) -> None:
        """Reads what follows the list of events."""
        text = self._filled(text, MAX_TRAILER_BYTES)
        rest = text.lstrip(_SPACE)
        if self._bare_list:
            self.damage.extra_bytes += len(rest.rstrip(_SPACE))
        elif not rest.strip(_SPACE):
            self.damage.truncated = True
        elif rest.startswith((b",", b"}")):
            self.damage.extra_bytes += self._read_members(b"{" + rest.removeprefix(b","))
        else:
            self.damage.extra_bytes += len(rest)
        while piece := next(self._pieces, None):
            self.damage.extra_bytes += len(piece)

    def _cut(self, text: bytes) -> tuple[bytes, bytes]:
        """Whole events at the beginning of `text`, and the rest; nothing remains when these are the file's last."""
        at = _last_border(text)
        while at < 0 and not self._ended and len(text) < MAX_EVENT_BYTES:
            text = self._filled(text, len(text) + self._size)
            at = _last_border(text)
        if at < 0:
            return text, b""
        return text[: at + 1], text[text.index(b",", at) + 1 :]

    # -- events --------------------------------------------------------------------------------------------------

    def _decoded(self, text: bytes) -> _Part:
        """The events of a block."""
        try:
            return _Part(records.BLOCK_DECODER.decode(b"[" + text + b"]"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._one_by_one(text)

    def _one_by_one(self, text: bytes) -> _Part:
        part = _Part([])
        at, size = 0, len(text)
        while (at := _between(text, at)) < size:
            if text.startswith(b"]", at):
                part.after = text[at + 1 :]
                break
            event, end = self._event(text, at)
            if end is None:
                part.open = text[at:]
                break
            at = end
            if event is not None:
                part.events.append(event)
            else:
                self.damage.bad += 1
        return part

    def _event(self, text: bytes, at: int) -> tuple[Event | None, int | None]:
        """The event at a place of the text and where it ends; no end when the text ends inside it."""
        border = at
        while True:
            match = _BORDER.search(text, border)
            end = match.start() + 1 if match else len(text)
            try:
                return records.decode(text[at:end]), end
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                stop = _trailing(error)
                if stop is not None and text.startswith(b"{", at):
                    return self._before_other_text(text, at, at + stop)
                if _is_truncated(error) and end - at < MAX_EVENT_BYTES:
                    if match is None:
                        return None, None
                    border = end  # that border lies inside the event
                    continue
            return self._repaired(text, at)

    def _before_other_text(self, text: bytes, at: int, stop: int) -> tuple[Event | None, int]:
        """An event that other text than the next event follows: the list's end, or what does not belong there."""
        event = records.decode(text[at:stop])
        if not text.startswith((b"]", b"{"), _between(text, stop)):
            self.damage.bad += 1
            stop = _resume(text, stop)
        return event, stop

    def _repaired(self, text: bytes, at: int) -> tuple[Event | None, int]:
        """A damaged event, up to the next one or the list's end, repaired if that is possible."""
        if not text.startswith(b"{", at):
            found = _BEGIN.search(text, at + 1)
            return None, found.start() if found else len(text)
        end = _resume(text, at + 1)
        piece = repair.repaired(text[at:end])
        for attempt in (piece, repair.requoted(piece)):
            try:
                event = records.decode(attempt)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            self.damage.repaired += event is not None
            return event, end
        return None, end


def _between(text: bytes, at: int) -> int:
    """Where the next thing begins: commas and white space skipped."""
    match = _GAP.match(text, at)
    return match.end() if match else at


def _resume(text: bytes, at: int) -> int:
    """Where to go on after damage: behind the next `}` that another event or the list's end follows."""
    match = _END.search(text, at)
    return match.end() if match else len(text)


def _last_border(text: bytes) -> int:
    """Place of the `}` that ends the last event that another one follows; -1 when there is none."""
    at = len(text)
    while (at := text.rfind(b"{", 0, at)) > 0:
        before = text[max(0, at - 256) : at].rstrip(_SPACE)
        if before.endswith(b","):
            before = before[:-1].rstrip(_SPACE)
            if before.endswith(b"}"):
                return max(0, at - 256) + len(before) - 1
    return -1


def _trailing(error: Exception) -> int | None:
    """Where a document ended that other text follows; None for another error."""
    text = str(error)
    if "trailing characters" not in text:
        return None
    match = _POSITION.search(text)
    return int(match[1]) - 1 if match else None  # it counts from 1


def _is_truncated(error: Exception) -> bool:
    return "truncated" in str(error)
