"""Records of a structured compile log (TORCH_TRACE format): one after the other, without holding the file.

A record is a glog line `V<MMDD> <time> <pid> <file>:<line>] {metadata}` and, when the metadata says so, a payload whose
lines each begin with a tab. Lines end with a line feed; a carriage return in front of it came with a copy of the file.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

HEAD = re.compile(rb"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\]]*\] (?=\{)", re.M)
"""What stands in front of a record's metadata."""

_NAMED = re.compile(r"^dedicated_log_torch_trace\w*\.log(?:\.gz)?$")
_GZIP = b"\x1f\x8b"
_SNIFFED_BYTES = 256 * 1024  # the first record stands at the top; a damaged beginning is a few payloads long at most

Record = tuple[dict[str, Any] | None, str]


def is_log(path: Path) -> bool:
    """Whether a file is a compile log: it is named like one, or has a record near its beginning.

    Raises:
        OSError: it cannot be read.
    """
    return bool(_NAMED.match(path.name)) or has_record(path)


def has_record(path: Path) -> bool:
    """Whether the beginning of a file holds a record's first line.

    Raises:
        OSError: it cannot be read.
    """
    with _opened(path) as stream:
        return bool(HEAD.search(_readable(stream)))


def _opened(path: Path) -> io.BufferedReader | gzip.GzipFile:
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP
    return gzip.open(path) if zipped else path.open("rb")


def _readable(stream: io.BufferedReader | gzip.GzipFile) -> bytes:
    found = b""
    try:
        while len(found) < _SNIFFED_BYTES and (more := stream.read1(_SNIFFED_BYTES)):
            found += more
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    return found


def records(path: Path, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> Iterator[Record]:
    """Metadata and payload of each record; lines in a row that belong to none are one record without metadata.

    Args:
        path: the log, plain or gzip.
        wanted: whether a record's payload is to be read; the others' are passed over.

    Raises:
        OSError: the file cannot be read.
    """
    metadata: dict[str, Any] | None = None
    payload: list[bytes] = []
    pending = keep = False
    for line in _lines(path):
        if line.startswith(b"\t"):
            if keep:
                payload.append(line[1:])
            continue
        if not (head := HEAD.match(line)) and not line.strip():
            continue  # copies and concatenations leave empty lines between records
        found = _metadata(line[head.end() :]) if head else None
        if pending and metadata is None and found is None:
            continue
        if pending:
            yield metadata, _text(payload)
        metadata, payload, pending = found, [], True
        keep = metadata is not None and wanted(metadata)
    if pending:
        yield metadata, _text(payload)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines; one that says so in the end when the file's compression is cut short."""
    with _opened(path) as stream:
        try:
            yield from stream
        except (EOFError, zlib.error, gzip.BadGzipFile):
            yield b"the compressed file ends here\n"


def _text(lines: list[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "replace").replace("\r\n", "\n")


def _metadata(text: bytes) -> dict[str, Any] | None:
    try:
        found = decoded(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def decoded(text: bytes | str) -> Any:
    """What a JSON text says; NaN and infinity, which Python writes, are taken too.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
