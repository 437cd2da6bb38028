"""Reads the call stacks that torch 1.8 to 1.10 wrote with each operator; newer ones record Python functions instead."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded, coded
from gpudoctor.ingest.callers import Names, place
from gpudoctor.ingest.kineto import Table, Trace

PRECISIONS = ("call", "def")
"""How exactly a line is known: that of the call, or only that where the function is defined."""


def from_call_stacks(trace: Trace, calls: Table, names: Names) -> dict[str, NDArray[Any] | Coded]:
    """Owner and line from the stacks that torch 1.8 to 1.10 wrote with each operator, innermost function first.

    Args:
        trace: the decoded trace, whose texts the stacks are.
        calls: its operators.
        names: of the user's files.

    Returns:
        the columns owner, caller_file, caller_function, file, function, line and precision of `ops`.
    """
    used, rows = np.unique(calls["call_stack"], return_inverse=True)
    texts = trace.texts("text")
    stacks = []
    for code in used.tolist():
        try:
            text = msgspec.json.decode(texts[code], type=str) if code >= 0 else ""
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = ""
        stacks.append([place(name, names, running=True) for name in text.split(";") if name])
    users = [next((p for p in stack if p.user is not None and p.line is not None), None) for stack in stacks]
    owners = [next((p.owner for p in stack if p.owner is not None), None) for stack in stacks]
    line = np.array([MISSING if user is None or user.line is None else user.line for user in users], np.int64)
    known = np.array([user is not None for user in users], bool)[rows]
    return {
        "owner": coded(rows, owners),
        "caller_file": coded(rows, [stack[0].file if stack else None for stack in stacks]),
        "caller_function": coded(rows, [stack[0].function if stack else None for stack in stacks]),
        "file": coded(rows, [user.user if user else None for user in users]),
        "function": coded(rows, [user.scope if user else None for user in users]),
        "line": line[rows],
        "precision": Coded(np.where(known, 0, -1).astype(np.int8), PRECISIONS),
    }
