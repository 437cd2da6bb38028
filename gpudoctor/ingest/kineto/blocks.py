"""Cuts the text of a trace into blocks of whole events and decodes them, with bounded memory and nothing readable lost.

A block ends at the last place in it that looks like the border between two events. A block that does not decode at
once (a wrong guess, the end of the list, damage) is taken apart event by event (`salvage`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gpudoctor.errors import InputError
from gpudoctor.ingest.kineto import records, repair
from gpudoctor.ingest.kineto.records import Event
from gpudoctor.ingest.kineto.salvage import ERRORS, MAX_EVENT_BYTES, Buffer, Damage, Salvage, trailing
from gpudoctor.ingest.kineto.source import Source

__all__ = ["BLOCK_BYTES", "MAX_EVENT_BYTES", "Blocks", "Damage"]

BLOCK_BYTES = 4 << 20
MAX_HEADER_BYTES = 64 << 20  # metadata before the events; recorded ones have kilobytes
MAX_TRAILER_BYTES = 64 << 20
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_SOMETHING = re.compile(rb"[^\s,]")
_SPACE = b" \t\r\n"


class Blocks:
    """Iterates over lists of decoded events of one file.

    Attributes:
        metadata: members of the trace beside its events; complete only when the iteration has ended.
        damage: what was lost, likewise.
    """

    def __init__(self, source: Source, block_bytes: int = BLOCK_BYTES) -> None:
        self._source, self._size = source, block_bytes
        self._buffer = Buffer(iter(source))
        self._bare_list = False
        self.metadata: dict[str, Any] = {}
        self.damage = Damage()

    def __iter__(self) -> Iterator[list[Event]]:
        """Lists of events in the file's order.

        Raises:
            InputError: the file is no trace.
        """
        buffer = self._buffer
        self._header()
        salvage = Salvage(buffer, self.damage, self._bare_list)
        ended = False
        while not ended:
            buffer.fill(self._size)
            if not _SOMETHING.search(buffer.text):
                if buffer.ended:
                    self.damage.truncated = True
                    break
                buffer.text = b""
                continue
            events = self._at_once()
            if events is None:
                events, ended = salvage.events(self._size)
            if events:
                yield events
        if not self.damage.truncated:
            self._trailer()
        self.damage.cut = self._source.cut

    # -- the text ------------------------------------------------------------------------------------------------

    def _header(self) -> None:
        """Reads up to the first event."""
        buffer, size = self._buffer, 1 << 16
        while True:
            buffer.fill(size)
            start = buffer.text.lstrip(_SPACE)
            if start.startswith(b"["):
                self._bare_list = True
                buffer.text = start[1:]
                return
            if start and not start.startswith(b"{"):
                raise InputError(f"{self._source.path}: not a Kineto trace: it does not begin like JSON")
            if found := list_begin(buffer.text):
                if self._read_members(_closed(buffer.text[: found.start()])):
                    self.damage.no_header = True
                buffer.text = buffer.text[found.end() :]
                return
            if buffer.ended or len(buffer.text) > MAX_HEADER_BYTES:
                break
            size *= 4
        if not buffer.text.strip(_SPACE):
            raise InputError(f"{self._source.path}: {self._source.cut or 'the file is empty'}")
        raise InputError(f"{self._source.path}: not a Kineto trace: its JSON has no traceEvents")

    def _read_members(self, text: bytes) -> int:
        """Adds an object's members to the metadata; the number of bytes that follow the object."""
        for attempt in (text, repair.repaired(text), repair.requoted(repair.repaired(text))):
            try:
                self.metadata |= msgspec.json.decode(attempt, type=dict[str, Any])
            except msgspec.ValidationError:
                break
            except ERRORS as error:
                end = trailing(error)
                if end is not None and end < len(attempt):
                    self._read_members(attempt[:end])
                    return len(attempt[end:].strip(_SPACE))
            else:
                self.damage.repaired += attempt is not text
                return 0
        self.damage.no_header = True
        return 0

    def _trailer(self) -> None:
        """Reads what follows the list of events."""
        buffer = self._buffer
        buffer.fill(MAX_TRAILER_BYTES)
        rest = buffer.text.strip(_SPACE)
        if self._bare_list:
            self.damage.extra_bytes += len(rest)
        elif not rest:
            self.damage.truncated = True
        elif rest.startswith((b",", b"}")):
            self.damage.extra_bytes += self._read_members(b"{" + rest.removeprefix(b","))
        else:
            self.damage.extra_bytes += len(rest)
        while not buffer.ended:
            buffer.text = b""
            buffer.fill(MAX_TRAILER_BYTES)
            self.damage.extra_bytes += len(buffer.text)

    # -- events --------------------------------------------------------------------------------------------------

    def _at_once(self) -> list[Event] | None:
        """The events up to the last border in the text, which is used up; None when they cannot be read at once."""
        buffer = self._buffer
        at = _last_border(buffer.text)
        while at < 0 and not buffer.ended and len(buffer.text) < MAX_EVENT_BYTES:
            buffer.fill(2 * len(buffer.text))
            at = _last_border(buffer.text)
        if at < 0:
            return None
        try:
            events = records.BLOCK_DECODER.decode(b"".join((b"[", memoryview(buffer.text)[: at + 1], b"]")))
        except ERRORS:
            return None
        buffer.text = buffer.text[buffer.text.index(b",", at) + 1 :]
        return events


def list_begin(text: bytes) -> re.Match[bytes] | None:
    """The key of the list of events, up to its bracket: not one inside another member, if that can be told."""
    first = None
    for found in _EVENTS.finditer(text):
        first = first or found
        try:
            msgspec.json.decode(_closed(text[: found.start()]), type=dict[str, msgspec.Raw])
        except ERRORS:
            continue
        return found
    return first


def _closed(text: bytes) -> bytes:
    """The beginning of an object, made whole."""
    return text.rstrip(_SPACE).removesuffix(b",") + b"}"


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
