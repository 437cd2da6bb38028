"""Fills the tables `ops` and `kernels` from decoded traces: phase, owner, user line, forward operator, host reads."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.ingest import op_classes
from gpudoctor.ingest.kineto import DEVICE, Node, Trace, nanoseconds
from gpudoctor.ingest.phases import Phases

_THIN = (
    "torch/_jit_internal.py",
    "torch/_tensor.py",
    "torch/_tensor_str.py",
    "torch/functional.py",
    "torch/nn/functional.py",
)
"""Wrappers that only pass a call of the user's on: print(t), f"{t}", t.unique()."""

_OWNERS = (("torch/optim/", "torch.optim"), ("torch/utils/data/", "torch.utils.data"), ("torch/amp/", "torch.amp"))


_UNNAMED = "unknown"
"""What torch shows for a function whose name or file it cannot decode."""

EXTERNAL = "_external"
"""Extra key of a row: the trace's External id, which ties launches to operators; not a column."""


@dataclass(frozen=True, slots=True)
class Window:
    """A profiled step on the trace's clock."""

    step: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Names:
    """What the recording knows about source files.

    Attributes:
        lines: for a line mark's id, `[file, line, function]`.
        sources: names of the user's files.
        shown: the user's file by the name that a trace shows.
    """

    lines: Sequence[Sequence[Any]]
    sources: Sequence[str]
    shown: Mapping[str, str] = field(default_factory=dict)

    def user_file(self, shown: str) -> str | None:
        """The user's file behind a name in a trace (torch shortens names by the search path); None for others."""
        if shown in self.shown:
            return self.shown[shown]
        for name in self.sources if not self.shown else ():
            if name == shown or name.endswith("/" + shown):
                return name
        return None


def rows(
    trace: Trace,
    windows: Sequence[Window],
    offset_ns: int,
    observation: str,
    names: Names,
    first_id: int,
    by_hand: bool = False,
) -> list[dict[str, Any]]:
    """Rows of `ops` for one trace.

    Args:
        trace: the decoded trace.
        windows: the profiled steps to keep, in order; operators outside are left out.
        offset_ns: what to add to the trace's times to get the recording's.
        observation: light or detail.
        names: line marks and user files.
        first_id: op id of the first row.
        by_hand: steps end at backward calls, because parameters are updated by hand.
    """
    starts = [window.start_ns for window in windows]
    classify = _Owners(names)
    made: list[dict[str, Any]] = []
    by_node: dict[int, int] = {}
    forwards: dict[tuple[int, int], int] = {}
    phases = Phases(trace.nodes, starts, by_hand)
    for node in trace.nodes:
        at = bisect_right(starts, node.start_ns) - 1
        if at < 0 or node.start_ns >= windows[at].end_ns or node.name.startswith("ProfilerStep#"):
            continue
        window = windows[at]
        parent = by_node.get(id(node.parent)) if node.parent is not None else None
        above = made[parent] if parent is not None else None
        phase = phases.of(node, above)
        row = _row(node, window, offset_ns, observation, names, classify)
        row |= {
            "op": first_id + len(made),
            "parent": first_id + parent if parent is not None else None,
            "depth": node.depth,
            "phase": phase,
            "region": _region(node, above),
        }
        row["host_read"] = _host_read(node, above)
        _place_forward(row, above, forwards, made, first_id)
        if phase not in ("backward",) and row["sequence"] is not None:
            forwards[(window.step, row["sequence"])] = len(made)
        by_node[id(node)] = len(made)
        made.append(row)
    return made


def _row(
    node: Node, window: Window, offset_ns: int, observation: str, names: Names, classify: _Owners
) -> dict[str, Any]:
    line = names.lines[node.mark] if node.mark is not None and node.mark < len(names.lines) else (None, None, None)
    owner, caller_file, caller_function = classify(node.python)
    file, number, function = line
    precision = "call" if file is not None else None
    if file is None and (frame := classify.user_frame(node.python)) is not None:
        file, number, function = frame
        precision = "def"
    sequence = node.args.get("Sequence number")
    types = node.args.get("Input type")
    shapes = node.args.get("Input Dims")
    return {
        "name": node.name,
        "start_ns": node.start_ns + offset_ns,
        "dur_ns": node.end_ns - node.start_ns,
        # a range that the step's end cuts (the optimizer's, whose hook ends the step) belongs to it up to there only
        "self_ns": max(0, min(node.end_ns, window.end_ns) - node.start_ns - node.children_ns),
        "thread": node.thread,
        "step": window.step,
        "observation": observation,
        "op_class": op_classes.op_class(node.name),
        "module": node.module,
        "file": file,
        "line": number,
        "precision": precision,
        "function": function,
        "caller_file": caller_file,
        "caller_function": caller_function,
        "owner": owner,
        "dtypes": ",".join(str(kind) for kind in types) if types is not None else None,
        "shapes": json.dumps(shapes, separators=(",", ":")) if shapes is not None else None,
        "sequence": int(sequence) if sequence is not None and int(sequence) >= 0 else None,
        "forward_op": None,
        EXTERNAL: node.args.get("External id"),
    }


def _region(node: Node, above: Mapping[str, Any] | None) -> str | None:
    if node.name.startswith("Torch-Compiled Region: "):
        return node.name.removeprefix("Torch-Compiled Region: ").split(" ")[0]
    return above["region"] if above is not None else None


def _host_read(node: Node, above: Mapping[str, Any] | None) -> bool:
    """Whether the host needs a value here; only the outermost such operator counts."""
    if above is not None and above["host_read"]:
        return False
    if node.name in op_classes.SHAPE_FROM_DATA:
        return True
    # asked for by Python itself; inside another operator it is a detail of ATen's CPU kernel
    if node.name == "aten::repeat_interleave":  # by a tensor of counts: the result's size is data
        return "long int" in (node.args.get("Input type") or [])[1:2]
    return node.name in op_classes.READS and (above is None or not str(above["name"]).startswith("aten::"))


def _place_forward(
    row: dict[str, Any],
    above: Mapping[str, Any] | None,
    forwards: Mapping[tuple[int, int], int],
    made: Sequence[Mapping[str, Any]],
    first_id: int,
) -> None:
    """Gives a backward operator the place of its forward operator (same autograd sequence number, the last one)."""
    if row["phase"] != "backward":
        return
    if above is not None and row["sequence"] is None:
        row["sequence"] = above["sequence"]
    if above is not None and above["forward_op"] is not None:
        row["forward_op"] = above["forward_op"]
    elif row["sequence"] is not None:
        at = forwards.get((row["step"], row["sequence"]))
        row["forward_op"] = first_id + at if at is not None else None
    if row["forward_op"] is None or row["owner"] == "user":  # the user's own autograd.Function has its own lines
        return
    forward = made[row["forward_op"] - first_id]
    for key in ("file", "line", "precision", "function", "module"):
        row[key] = forward[key]


class _Owners:
    """Says who called an operator, from the Python functions around it; remembers names it has seen."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[str, tuple[str, str, str, str | None]] = {}

    def _split(self, name: str) -> tuple[str, str, str, str | None]:
        """`(file, line, function, user's file)` of a python_function event's name `path(line): function`."""
        if name not in self._known:
            head, _, function = name.rpartition(": ")
            file, _, line = head.rpartition("(")
            self._known[name] = (file, line.rstrip(")"), function, self._names.user_file(file) if file else None)
        return self._known[name]

    def __call__(self, python: Node | None) -> tuple[str | None, str | None, str | None]:
        if python is None:
            return None, None, None
        if python.name == _UNNAMED:
            return "user", None, None
        if python.name.startswith("nn.Module: "):
            return "torch", None, python.name
        file, _, function, user = self._split(python.name)
        if user is not None:
            return "user", user, function
        owner = next((owner for folder, owner in _OWNERS if folder in file), None)
        if owner is None and file.endswith(_THIN):
            owner = self(python.python)[0]
        elif owner is None:
            owner = "torch" if file.startswith(("torch/", "<")) or "/torch/" in file else "library"
        return owner, file, function

    def user_frame(self, python: Node | None) -> tuple[str, int, str] | None:
        """Place of the innermost function of the user's: its first line, as traces know no other."""
        while python is not None:
            _, line, function, user = self._split(python.name)
            if user is not None and line.isdigit():
                return user, int(line), function
            python = python.python
        return None


def kernel_rows(
    trace: Trace, windows: Sequence[Window], offset_ns: int, ops: Sequence[Mapping[str, Any]], first_id: int
) -> list[dict[str, Any]]:
    """Rows of `kernels` for one trace; a launch is tied to its operator by External id."""
    launches = {op[EXTERNAL]: op for op in ops if op[EXTERNAL] is not None}
    starts = [window.start_ns for window in windows]
    made: list[dict[str, Any]] = []
    for event, args in trace.device:
        start = nanoseconds(event.ts)
        at = bisect_right(starts, start) - 1
        op = launches.get(args.get("External id"))
        inside = at >= 0 and start < windows[at].end_ns
        kind = DEVICE[event.cat.lower()]
        moved = args.get("bytes")
        made.append(
            {
                "kernel": first_id + len(made),
                "name": event.name,
                "kind": kind,
                "kernel_class": op_classes.kernel_class(event.name) if kind == "kernel" else "copy",
                "start_ns": start + offset_ns,
                "dur_ns": nanoseconds(event.dur),
                "device": _int(args.get("device")),
                "stream": _int(args.get("stream")),
                "correlation": _int(args.get("correlation")),
                "op": op["op"] if op else None,
                "step": windows[at].step if inside else None,
                "bytes": _int(moved),
                "direction": _direction(event.name) if kind == "memcpy" else None,
                "pageable": "pageable" in event.name.lower() if kind == "memcpy" else None,
                "file": op["file"] if op else None,
                "line": op["line"] if op else None,
            }
        )
    return made


def _direction(name: str) -> str | None:
    short = name.lower().replace(" ", "")
    for text, direction in (("htod", "h2d"), ("hosttodevice", "h2d"), ("dtoh", "d2h"), ("devicetohost", "d2h")):
        if text in short:
            return direction
    return (
        "p2p" if "ptop" in short or "peer" in short else "d2d" if "dtod" in short or "devicetodevice" in short else None
    )


def _int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
