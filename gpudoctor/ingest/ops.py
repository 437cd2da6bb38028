"""Fills the table `ops` from a decoded trace: phase, owner, user line, forward operator, host reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudoctor.ingest import op_classes
from gpudoctor.ingest.callers import Called, Callers, Names, callers, who_called
from gpudoctor.ingest.kineto import Table, Trace
from gpudoctor.ingest.nesting import Tree, nest
from gpudoctor.profile import MISSING, Coded

LINE_MARK = "gpudoctor::line#"
"""Annotations of the recorder's: the number that follows is the id of the user's line that runs from here on."""

STEP_MARK = "ProfilerStep#"
_REGION = "Torch-Compiled Region: "
_BACKWARD_RANGE = "gpudoctor::backward"
_PHASES = ("input", "transfer", "forward", "backward", "optimizer", "other")
_INPUT, _TRANSFER, _FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(len(_PHASES))
_AUTOGRAD_NODE = re.compile(r"^(?:torch::autograd::\w+|\w+Backward\d*)$")
"""Names of autograd nodes; before torch 1.11 nothing else marks the backward pass."""

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Mask = NDArray[np.bool_]
Columns = dict[str, NDArray[Any] | Coded]


@dataclass(frozen=True, slots=True)
class Window:
    """A profiled step on the trace's clock."""

    step: int
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Ops:
    """Rows of `ops`, and what ties other tables to them.

    Attributes:
        columns: the table's columns.
        external: the trace's External id of each, which ties launches to operators.
        tree: all operators nested, on the trace's clock.
        ids: op id by position in the tree, `MISSING` for those that are no rows; the last cell answers for "none".
    """

    columns: Columns
    external: Ints
    tree: Tree
    ids: Ints

    def __len__(self) -> int:
        return len(self.external)

    def around(self, thread: Codes, start_ns: Ints, end_ns: Ints) -> Ints:
        """Id of the innermost operator around the beginning of each event, `MISSING` for none."""
        return self.ids[self.tree.enclosing(thread, start_ns, end_ns)]

    def by_external(self, external: Ints) -> Ints:
        """Id of the operator with each External id, `MISSING` for none; 0 and less are no ids."""
        order = np.argsort(self.external, kind="stable")
        known = self.external[order]
        if not len(known):
            return np.full(len(external), MISSING, np.int64)
        at = np.searchsorted(known, external, side="right") - 1
        found = (at >= 0) & (known[at] == external) & (external > 0)
        return np.where(found, _ids(self)[order[at]], MISSING)

    def of(self, name: str, ids: Ints) -> NDArray[Any] | Coded:
        """A column's cells for op ids, null for `MISSING`."""
        column, own = self.columns[name], _ids(self)
        if not len(own):
            return (
                Coded(np.full(len(ids), -1, np.int32), ()) if isinstance(column, Coded) else np.full(len(ids), MISSING)
            )
        rows = np.where(ids == MISSING, 0, ids - own[0])
        if isinstance(column, Coded):
            return Coded(np.where(ids == MISSING, -1, column.codes[rows]).astype(np.int32), column.values)
        return np.where(ids == MISSING, MISSING, column[rows])


def build(
    trace: Trace,
    windows: Sequence[Window],
    offset_ns: int,
    observation: str,
    names: Names,
    first_id: int = 0,
    outside: bool = False,
) -> Ops:
    """The operators of one trace.

    Args:
        trace: the decoded trace.
        windows: the profiled steps, in order.
        offset_ns: what to add to the trace's times to get the recording's.
        observation: light or detail.
        names: line marks and user files.
        first_id: op id of the first row.
        outside: keep operators outside the windows, with no step; they are left out otherwise.
    """
    texts = trace.texts("name")
    found = callers(trace.table("python"), texts, names)
    calls, marks = _calls(trace, found, texts)
    texts = trace.texts("name")  # it has new ones: those of the pseudo-operators
    tree = nest(calls["start_ns"], calls["dur_ns"], calls["thread"])
    calls = calls.take(tree.order)
    step_row = windows_of(tree.start_ns, windows)
    made = _Builder(trace, texts, windows, names, tree, calls, step_row)
    called = who_called(found, tree.thread, tree.start_ns, tree.end_ns)
    columns = made.columns(observation, found, called, marks)
    keep = np.ones(len(step_row), bool) if outside else step_row >= 0
    return _in_order(columns, tree, calls, keep, offset_ns, first_id)


def windows_of(start_ns: Ints, windows: Sequence[Window]) -> Ints:
    """Number of the window that each time lies in, -1 for none."""
    begins = np.array([window.start_ns for window in windows], np.int64)
    ends = np.array([window.end_ns for window in windows], np.int64)
    at = np.searchsorted(begins, start_ns, side="right") - 1
    if len(windows):
        at = np.where((at >= 0) & (start_ns < ends[at]), at, -1)
    return at


def _calls(trace: Trace, found: Callers, texts: Sequence[str]) -> tuple[Table, Table]:
    """Operators and annotations (with the pseudo-operators that read a tensor), and line marks."""
    ops = trace.table("ops")
    if not len(ops):
        ops = Table({**_NO_OPS.columns})
    codes = np.unique(ops["name"])
    dropped = [c for c in codes if texts[c].startswith((LINE_MARK, STEP_MARK))]
    marked = np.isin(ops["name"], [c for c in dropped if texts[c].startswith(LINE_MARK)])
    marks = ops.take(marked)
    calls = ops.take(~np.isin(ops["name"], dropped)) if dropped else ops
    if not found.reads:
        return calls, marks
    rows = np.array([row for row, _ in found.reads], np.int64)
    python = trace.table("python").take(rows)
    added = {
        name: np.full(len(rows), MISSING if column.dtype == np.int64 else -1, column.dtype)
        for name, column in calls.columns.items()
    }
    added |= {name: python[name] for name in ("start_ns", "dur_ns", "thread")}
    added["name"] = np.array([trace.columns.names[name] for _, name in found.reads], np.int32)
    return Table({name: np.concatenate((column, added[name])) for name, column in calls.columns.items()}), marks


_INT_COLUMNS = ("start_ns", "dur_ns", "external", "sequence", "forward_thread")
_CODE_COLUMNS = ("name", "thread", "category", "dims", "types", "concrete", "call_stack")
_NO_OPS = Table(
    {name: np.empty(0, np.int64) for name in _INT_COLUMNS} | {name: np.empty(0, np.int32) for name in _CODE_COLUMNS}
)


@dataclass(slots=True)
class _Builder:
    """Derives the columns, in the order of the tree."""

    trace: Trace
    texts: Sequence[str]
    windows: Sequence[Window]
    names: Names
    tree: Tree
    calls: Table
    window: Ints

    def columns(self, observation: str, found: Callers, called: Called, marks: Table) -> Columns:
        count = len(self.window)
        steps = np.array([window.step for window in self.windows] or [0], np.int64)
        columns: Columns = {
            "name": Coded(self.calls["name"], self.texts),
            "start_ns": self.tree.start_ns,
            "dur_ns": self.tree.end_ns - self.tree.start_ns,
            "self_ns": self._self_ns(),
            "thread": self.trace.thread_numbers()[self.tree.thread],
            "step": np.where(self.window >= 0, steps[self.window], MISSING),
            "observation": Coded(np.zeros(count, np.int32), (observation,)),
            "depth": self.tree.depth.astype(np.int64),
            "op_class": self._by_name(op_classes.op_class),
            "region": self._region(),
            "dtypes": self._from_json("types", _dtypes),
            "shapes": self._from_json("dims", _shapes),
        }
        phase = self._phase()
        columns["host_read"] = self._host_read()
        columns |= _who(found, called, count)
        columns |= self._places(found, called, marks)
        if self._has_call_stacks():
            columns |= _from_call_stacks(self, columns)
        columns |= self._forward(phase, columns)
        columns["phase"] = Coded(phase, _PHASES)
        return columns

    # -- by name -------------------------------------------------------------------------------------------------

    def _names_in_use(self) -> tuple[Codes, list[str]]:
        codes = np.unique(self.calls["name"])
        return codes, [self.texts[code] for code in codes]

    def _by_name(self, function: Callable[[str], str]) -> Coded:
        codes, texts = self._names_in_use()
        values = [function(text) for text in texts]
        return Coded(np.searchsorted(codes, self.calls["name"]).astype(np.int32), values)

    def _flag(self, function: Callable[[str], bool]) -> Mask:
        codes, texts = self._names_in_use()
        flags = np.array([function(text) for text in texts], bool)
        return flags[np.searchsorted(codes, self.calls["name"])] if len(codes) else np.empty(0, bool)

    def _from_json(self, column: str, function: Callable[[bytes], str]) -> Coded:
        used, rows = np.unique(self.calls[column], return_inverse=True)
        texts = self.trace.texts("text")
        values = ["" if code < 0 else function(texts[code]) for code in used]
        return Coded(np.where(used[rows] < 0, -1, rows).astype(np.int32), values)

    # -- what a call takes over from those around it -------------------------------------------------------------

    def _self_ns(self) -> Ints:
        """A range that the step's end cuts (the optimizer's, whose hook ends the step) belongs to it up to there."""
        ends = np.array([window.end_ns for window in self.windows] or [0], np.int64)
        over = np.where(self.window >= 0, self.tree.end_ns - ends[self.window], 0)
        return np.maximum(self.tree.self_ns() - np.maximum(over, 0), 0)

    def _phase(self) -> Codes:
        codes, texts = self._names_in_use()
        own = np.array([_phase_of(text) for text in texts], np.int32)
        given = own[np.searchsorted(codes, self.calls["name"])] if len(codes) else np.empty(0, np.int32)
        forward_thread = self.calls["forward_thread"]
        given = np.where((given < 0) & (forward_thread > 0), _BACKWARD, given).astype(np.int32)
        phase = self.tree.inherit(given)
        begun = np.full(max(len(self.windows), 1), np.iinfo(np.int64).max)
        roots = np.flatnonzero((given == _BACKWARD) & (self.window >= 0))
        np.minimum.at(begun, self.window[roots], self.tree.start_ns[roots])
        late = self.tree.start_ns >= np.where(self.window >= 0, begun[self.window], begun.max())
        # below a call without a phase everything counts like that call itself
        top = self.tree.inherit(np.where((phase < 0) & (self.tree.depth == 0), late, -1).astype(np.int32))
        return np.where(phase >= 0, phase, np.where(top > 0, _OTHER, _FORWARD)).astype(np.int32)

    def _region(self) -> Coded:
        codes, texts = self._names_in_use()
        values = [text.removeprefix(_REGION).split(" ")[0] for text in texts]
        own = self._flag(lambda text: text.startswith(_REGION))
        rows = np.where(own, np.searchsorted(codes, self.calls["name"]), -1).astype(np.int32)
        return Coded(self.tree.inherit(rows), values)

    def _host_read(self) -> Mask:
        """Whether the host needs a value here; only the outermost such operator counts."""
        always = self._flag(lambda text: text in op_classes.SHAPE_FROM_DATA)
        read = self._flag(lambda text: text in op_classes.READS)
        inside_aten = self._flag(lambda text: text.startswith("aten::"))
        by_counts = self._flag(lambda text: text == "aten::repeat_interleave")
        if by_counts.any():  # by a tensor of counts: the result's size is data
            types = self._from_json("types", _dtypes)
            second = np.array([text.split(",")[1:2] == ["long int"] for text in types.values] or [False], bool)
            always |= by_counts & second[types.codes] & (types.codes >= 0)
        parent = self.tree.parent
        # asked for by Python itself; inside another operator it is a detail of ATen's CPU kernel
        wanted = always | (read & ~by_counts & ((parent < 0) | ~inside_aten[parent]))
        within = wanted.copy()
        for rows in self.tree.levels():
            above = within[parent[rows]]
            wanted[rows] &= ~above
            within[rows] |= above
        return wanted

    # -- lines ---------------------------------------------------------------------------------------------------

    def _mark(self, marks: Table) -> Codes:
        """Id of the last line mark on the call's thread before it."""
        made = np.full(len(self.window), -1, np.int32)
        if not len(marks):
            return made
        ids = {code: int(self.texts[code].removeprefix(LINE_MARK)) for code in np.unique(marks["name"])}
        order = np.lexsort((marks["start_ns"], marks["thread"]))
        thread, start = marks["thread"][order], marks["start_ns"][order]
        number = np.array([ids[code] for code in marks["name"][order].tolist()], np.int32)
        for one in np.unique(self.tree.thread):
            first, last = np.searchsorted(thread, (one, one + 1))
            rows = slice(*np.searchsorted(self.tree.thread, (one, one + 1)))
            at = np.searchsorted(start[first:last], self.tree.start_ns[rows], side="right") - 1
            if last > first:
                made[rows] = np.where(at >= 0, number[first:last][at], -1)
        return made

    def _places(self, found: Callers, called: Called, marks: Table) -> Columns:
        """The user's line: where a mark says so the very line of the call, else where the user's function begins."""
        mark = self._mark(marks)
        lines = self.names.lines
        mark = np.where(mark < len(lines), mark, -1)
        known = np.array([line[0] is not None for line in lines] or [False], bool)
        exact = (mark >= 0) & known[mark]
        code = np.where(called.user >= 0, found.code[called.user], -1) if len(found.code) else called.user
        by_code = sorted(c for c in found.places if found.places[c].user is not None)
        at = np.searchsorted(np.array(by_code or [0]), code)
        framed = (code >= 0) & ~exact & bool(by_code)
        places = [found.places[c] for c in by_code]
        shift = len(lines)
        rows = np.where(exact, mark, np.where(framed, at + shift, -1)).astype(np.int32)
        numbers = [line[1] for line in lines] + [place.line for place in places]
        line = np.array([MISSING if n is None else int(n) for n in numbers] or [MISSING], np.int64)
        precision = np.where(exact, 0, np.where(framed, 1, -1)).astype(np.int32)
        return {
            "file": _coded(rows, [line[0] for line in lines] + [place.user for place in places]),
            "line": np.where(rows >= 0, line[rows], MISSING),
            "function": _coded(rows, [line[2] for line in lines] + [place.function for place in places]),
            "precision": Coded(precision, ("call", "def")),
        }

    def _has_call_stacks(self) -> bool:
        return bool((self.calls["call_stack"] >= 0).any())

    # -- forward and backward ------------------------------------------------------------------------------------

    def _forward(self, phase: Codes, columns: Columns) -> Columns:
        """Gives backward operators the place of their forward operator: same autograd sequence number, the last one."""
        tree, sequence = self.tree, self.calls["sequence"].copy()
        sequence[sequence < 0] = MISSING
        backward = phase == _BACKWARD
        for rows in tree.levels():
            inherits = backward[rows] & (sequence[rows] == MISSING)
            sequence[rows] = np.where(inherits, sequence[tree.parent[rows]], sequence[rows])
        forward = self._same_sequence(sequence, backward)
        for rows in tree.levels():
            above = np.where(backward[rows] & backward[tree.parent[rows]], forward[tree.parent[rows]], -1)
            forward[rows] = np.where(above >= 0, above, forward[rows])
        moved: Columns = {"sequence": sequence, "forward_row": forward}
        owner = columns["owner"]
        assert isinstance(owner, Coded)
        users = np.array([text == "user" for text in owner.values] or [False], bool)
        # the user's own autograd.Function has its own lines
        takes = backward & (forward >= 0) & ~(users[owner.codes] & (owner.codes >= 0))
        source = np.where(takes, forward, np.arange(len(forward)))
        for name in ("file", "line", "precision", "function", "module"):
            column = columns[name]
            moved[name] = column.take(source) if isinstance(column, Coded) else column[source]
        return moved

    def _same_sequence(self, sequence: Ints, backward: Mask) -> Codes:
        made = np.full(len(sequence), -1, np.int32)
        forwards = np.flatnonzero(~backward & (sequence != MISSING))
        wanting = np.flatnonzero(backward & (sequence != MISSING))
        if not len(forwards) or not len(wanting):
            return made
        # the last one in time is the innermost: the operator that made the autograd node
        forwards = forwards[np.lexsort((self.tree.start_ns[forwards], sequence[forwards], self.window[forwards]))]
        keys = np.stack((self.window[forwards], sequence[forwards]))
        change = np.flatnonzero((np.diff(keys, axis=1) != 0).any(axis=0))
        last = np.append(change, len(forwards) - 1)
        span = int(sequence.max()) + 1
        known = self.window[forwards[last]] * span + sequence[forwards[last]]
        asked = self.window[wanting] * span + sequence[wanting]
        at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        made[wanting] = np.where(known[at] == asked, forwards[last[at]], -1)
        return made


def _who(found: Callers, called: Called, count: int) -> Columns:
    by_code = sorted(found.places)
    places = [found.places[code] for code in by_code]

    def rows(position: Codes) -> Codes:
        if not by_code:
            return np.full(count, -1, np.int32)
        at = np.searchsorted(np.array(by_code), found.code[position])
        return np.where(position >= 0, at, -1).astype(np.int32)

    function = rows(called.function)
    return {
        "owner": _coded(rows(called.owner), [place.owner for place in places]),
        "caller_file": _coded(function, [place.file for place in places]),
        "caller_function": _coded(function, [place.function for place in places]),
        "module": _coded(rows(called.module), [place.module for place in places]),
    }


def _coded(rows: Codes, values: Sequence[str | None]) -> Coded:
    """Texts by row number of a list that has None in it."""
    absent = np.array([value is None for value in values] or [True], bool)
    return Coded(np.where((rows < 0) | absent[rows], -1, rows).astype(np.int32), [value or "" for value in values])


def _phase_of(name: str) -> int:
    if name.startswith("enumerate(DataLoader)#"):
        return _INPUT
    if name == _BACKWARD_RANGE or name.startswith("autograd::engine::") or _AUTOGRAD_NODE.match(name):
        return _BACKWARD
    if name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")):
        return _OPTIMIZER
    return -1


def _dtypes(text: bytes) -> str:
    try:
        return ",".join(map(str, msgspec.json.decode(text, type=list[Any])))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _shapes(text: bytes) -> str:
    try:
        return json.dumps(msgspec.json.decode(text), separators=(",", ":"))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _from_call_stacks(builder: _Builder, columns: Columns) -> Columns:
    """Owner and line from the stacks that torch 1.8 to 1.10 wrote with each operator, innermost function first."""
    from gpudoctor.ingest.callers import place

    used, rows = np.unique(builder.calls["call_stack"], return_inverse=True)
    texts = builder.trace.texts("text")
    stacks = []
    for code in used:
        try:
            text = msgspec.json.decode(texts[code], type=str) if code >= 0 else ""
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = ""
        stacks.append([place(name, builder.names) for name in text.split(";") if name])
    users = [next((p for p in stack if p.user is not None and p.line is not None), None) for stack in stacks]
    owners = [next((p.owner for p in stack if p.owner is not None), None) for stack in stacks]
    line = np.array([MISSING if user is None or user.line is None else user.line for user in users], np.int64)
    codes = rows.astype(np.int32)
    known = np.array([user is not None for user in users], bool)[rows]
    return {
        "owner": _coded(codes, owners),
        "caller_file": _coded(codes, [stack[0].file if stack else None for stack in stacks]),
        "caller_function": _coded(codes, [stack[0].function if stack else None for stack in stacks]),
        "file": _coded(codes, [user.user if user else None for user in users]),
        "function": _coded(codes, [user.function if user else None for user in users]),
        "line": line[rows],
        "precision": Coded(np.where(known, 0, -1).astype(np.int32), ("call",)),
    }


def _in_order(columns: Columns, tree: Tree, calls: Table, keep: Mask, offset_ns: int, first_id: int) -> Ops:
    """Rows in time order, numbered; references between rows follow."""
    picked = np.flatnonzero(keep)
    picked = picked[np.lexsort((-tree.end_ns[picked], tree.start_ns[picked]))]
    number = np.full(len(keep) + 1, MISSING, np.int64)  # the last one answers for "none"
    number[picked] = first_id + np.arange(len(picked))
    made: Columns = {"op": number[picked], "parent": number[tree.parent[picked]]}
    forward = columns.pop("forward_row")
    assert isinstance(forward, np.ndarray)
    made["forward_op"] = number[forward[picked]]
    for name in list(columns):
        column = columns.pop(name)
        made[name] = column.take(picked) if isinstance(column, Coded) else column[picked]
    start = made["start_ns"]
    assert isinstance(start, np.ndarray)
    made["start_ns"] = start + offset_ns
    return Ops(made, calls["external"][picked], tree, number)


def mark_transfers(ops: Ops, kernels: Columns) -> None:
    """Sets the phase `transfer` on operators of the forward that copy from the host to a device, callers included."""
    phase, names = ops.columns["phase"], ops.columns["name"]
    op, parent, direction = kernels["op"], ops.columns["parent"], kernels["direction"]
    assert isinstance(phase, Coded)
    assert isinstance(names, Coded)
    assert isinstance(direction, Coded)
    assert isinstance(op, np.ndarray)
    assert isinstance(parent, np.ndarray)
    copies = [code for code, text in enumerate(direction.values) if text == "h2d"]
    first = int(_ids(ops)[0]) if len(ops) else 0
    rows = np.unique(op[np.isin(direction.codes, copies) & (op != MISSING)]) - first
    aten = np.array([text.startswith("aten::") for text in names.values], bool)
    while len(rows):
        rows = rows[(phase.codes[rows] == _FORWARD) & aten[names.codes[rows]]]
        phase.codes[rows] = _TRANSFER
        above = parent[rows]
        rows = np.unique(above[above != MISSING]) - first


def _ids(ops: Ops) -> Ints:
    ids = ops.columns["op"]
    assert isinstance(ids, np.ndarray)
    return ids
