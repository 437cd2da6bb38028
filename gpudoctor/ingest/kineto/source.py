"""The bytes of a trace file, whatever its name: plain or gzip by the first bytes, any UTF, whole or cut short."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpudoctor.errors import InputError

READ_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's wbits for a gzip member
_UTF8_BOM = codecs.BOM_UTF8
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Source:
    """Reads a file in pieces of text bytes (UTF-8).

    Attributes:
        cut: why the stream ended before its end, for the user; None when it did not.
        raw_bytes: bytes handed out so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut: str | None = None
        self.raw_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        """Pieces in order, never empty.

        Raises:
            InputError: the file cannot be opened or read.
        """
        try:
            with self.path.open("rb") as file:
                for piece in _utf8(self._inflated(file)):
                    self.raw_bytes += len(piece)
                    yield piece
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror or error})") from None
        except ValueError as error:  # a NUL in the name
            raise InputError(f"{str(self.path)!r}: cannot be read ({error})") from None

    def _inflated(self, file: BinaryIO) -> Iterator[bytes]:
        first = file.read(READ_BYTES)
        if not first.startswith(_GZIP):
            while first:
                yield first
                first = file.read(READ_BYTES)
            return
        inflate, data = zlib.decompressobj(_GZIP_WINDOW), first
        while data:
            try:
                piece = inflate.decompress(data, READ_BYTES)
            except zlib.error as error:
                self.cut = f"its gzip data is damaged ({error})"
                return
            if piece:
                yield piece
            data = inflate.unconsumed_tail
            if inflate.eof:  # another member may follow
                data = inflate.unused_data.lstrip(b"\0")
                while len(data) < len(_GZIP) and (more := file.read(READ_BYTES)):
                    data = (data + more).lstrip(b"\0")
                if not data.startswith(_GZIP):
                    if data:
                        self.cut = "other data follows its gzip data"
                    return
                inflate = zlib.decompressobj(_GZIP_WINDOW)
            elif not data:
                data = file.read(READ_BYTES)
        if not inflate.eof:
            self.cut = "its gzip data ends early"


def _utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Takes a byte order mark off and turns UTF-16 into UTF-8."""
    first = b""
    while len(first) < len(_UTF8_BOM) and (piece := next(pieces, None)):
        first += piece
    if first.startswith(_UTF8_BOM):
        first = first[len(_UTF8_BOM) :]
    encoding = _UTF16.get(first[:2])
    if encoding is None:
        if first:
            yield first
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    text = decoder.decode(first[2:])
    while True:
        if text:
            yield text.encode("utf-8", "replace")
        piece = next(pieces, None)
        if piece is None:
            return
        text = decoder.decode(piece)
