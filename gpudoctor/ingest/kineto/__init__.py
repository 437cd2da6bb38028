"""Reads Kineto traces (Chrome trace JSON, plain or gzip) as a stream: bounded memory, exact times, stated losses.

`source` gives the bytes, `blocks` cuts and decodes them (`records`, `repair`), `events` turns events into columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gpudoctor.errors import InputError
from gpudoctor.ingest.kineto.blocks import Blocks, Damage
from gpudoctor.ingest.kineto.events import Columns, Table
from gpudoctor.ingest.kineto.numbers import MISSING, integer
from gpudoctor.ingest.kineto.source import Source

__all__ = ["Columns", "Damage", "Table", "Trace", "read"]


@dataclass(slots=True)
class Trace:
    """A trace, decoded.

    Attributes:
        tables: columns by group: ops, python, runtime, device, sync, device_ranges, overhead, links, memory, other.
        columns: the dictionaries that the tables' codes point into, and what was counted.
        metadata: members of the trace beside its events.
        damage: what could not be read.
        text_bytes: size of the trace's text.
    """

    tables: dict[str, Table]
    columns: Columns
    metadata: dict[str, Any] = field(default_factory=dict)
    damage: Damage = field(default_factory=Damage)
    text_bytes: int = 0

    def table(self, group: str) -> Table:
        """A group's table, empty when the trace has none of it."""
        return self.tables.get(group, Table())

    def texts(self, kind: Literal["name", "text", "category"]) -> list[Any]:
        """What a column's codes stand for, by code: names and categories (str), raw JSON (bytes)."""
        kinds = {"name": self.columns.names, "text": self.columns.texts, "category": self.columns.categories}
        return list(kinds[kind])

    def thread_numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Thread id by code; -1 where it is no number."""
        numbers = [integer(tid) for _, tid in self.columns.threads]
        return np.array([-1 if number == MISSING else number for number in numbers] or [-1], np.int64)


def read(path: Path) -> Trace:
    """Reads a trace file.

    Raises:
        InputError: the file cannot be read, or is no Kineto trace.
    """
    source = Source(path)
    blocks, columns = Blocks(source), Columns()
    for events in blocks:
        columns.add(events)
    tables = columns.finish()
    blocks.damage.bad += columns.no_event
    if not columns.rows:
        raise InputError(f"{path}: no events; is it a Kineto trace?")
    return Trace(tables, columns, blocks.metadata, blocks.damage, source.raw_bytes)
