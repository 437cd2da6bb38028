"""Fills the table `collectives`: what each communication kernel exchanges, how much, and between whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded, coded
from gpudoctor.ingest.kineto import Trace
from gpudoctor.ingest.kineto.numbers import integer
from gpudoctor.ingest.ops import Columns

_COLLECTIVES = (
    ("all_reduce", ("allreduce", "all_reduce")),
    ("all_gather", ("allgather", "all_gather")),
    ("reduce_scatter", ("reducescatter", "reduce_scatter")),
    ("all_to_all", ("alltoall", "all_to_all")),
    ("broadcast", ("broadcast",)),
    ("send_recv", ("sendrecv", "send_recv")),
    ("reduce", ("reduce",)),
    ("send", ("send",)),
    ("recv", ("recv",)),
)
_ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8": 1, "half": 2, "bfloat16": 2, "short": 2,
    "int16": 2, "float16": 2, "float": 4, "float32": 4, "int": 4, "int32": 4, "double": 8, "float64": 8, "long": 8,
    "int64": 8, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def collectives_of(trace: Trace, kernels: Columns) -> Columns:
    """The columns of `collectives`: one row a communication kernel, empty when there is none.

    Args:
        trace: the decoded trace.
        kernels: the table of its kernels, in the order of their starts; times are copied as they are there.
    """
    if not kernels:
        return {}
    classes = kernels["kernel_class"]
    assert isinstance(classes, Coded)
    communication = np.array([text == "communication" for text in classes.values], bool)
    rows = np.flatnonzero(communication[classes.codes])
    said = _what_kernels_say(trace, rows)
    names = kernels["name"]
    assert isinstance(names, Coded)
    made: list[str | None] = []
    dtypes: list[str | None] = []
    groups: list[str | None] = []
    sizes, ranks = [], []
    for row, facts in zip(rows.tolist(), said, strict=True):
        name = facts.get("collective") or names.values[names.codes[row]]
        made.append(_collective(str(name)))
        dtypes.append(str(facts["dtype"]) if facts.get("dtype") else None)
        sizes.append(_message_bytes(facts))
        ranks.append(integer(facts.get("group_size")))
        group = facts.get("group_description") or facts.get("group_name")
        groups.append(str(group) if group else None)
    picked: Columns = {}
    for key in ("kernel", "start_ns", "dur_ns", "device", "stream", "step", "op", "file", "line"):
        column = kernels[key]
        picked[key] = column.take(rows) if isinstance(column, Coded) else column[rows]
    return picked | {
        "collective": np.arange(len(rows), dtype=np.int64),
        "name": _texts(made),
        "dtype": _texts(dtypes),
        "bytes": np.array(sizes, np.int64),
        "ranks": np.array(ranks, np.int64),
        "group": _texts(groups),
    }


def _what_kernels_say(trace: Trace, rows: NDArray[Any]) -> list[dict[str, Any]]:
    """Metadata of communication kernels: their own, else that of the operator that launched them."""
    table = trace.table("device")
    order = np.lexsort((-table["dur_ns"], table["start_ns"]))
    own, asked = trace.columns.collectives.get("device", {}), trace.columns.collectives.get("ops", {})
    return [own.get(int(at)) or asked.get(int(table["external"][at])) or {} for at in order[rows]]


def _collective(name: str) -> str:
    short = name.lower()
    return next((said for said, texts in _COLLECTIVES if any(text in short for text in texts)), "other")


def _message_bytes(facts: dict[str, Any]) -> int:
    size = _ELEMENT_BYTES.get(str(facts.get("dtype", "")).lower().removeprefix("c10::"))
    elements = [integer(facts.get(key)) for key in ("elements_in", "elements_out")]
    largest = max(elements)
    return largest * size if size is not None and largest >= 0 else MISSING


def _texts(values: Sequence[str | None]) -> Coded:
    return coded(np.arange(len(values)), values)
