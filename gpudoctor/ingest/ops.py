"""Fills the table `ops` from a decoded trace: phase, owner, user line, forward operator, host reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudoctor.columns import MISSING, Coded, coded
from gpudoctor.ingest import forward_links, op_classes, phases
from gpudoctor.ingest.call_stacks import PRECISIONS, from_call_stacks
from gpudoctor.ingest.callers import Called, Callers, Names, callers, who_called
from gpudoctor.ingest.kineto import Table, Trace
from gpudoctor.ingest.nesting import Tree, nest

LINE_MARK = "gpudoctor::line#"
"""Annotations of the recorder's: the number that follows is the id of the user's line that runs from here on."""

STEP_MARK = "ProfilerStep#"
OPTIMIZER_RANGE = "Optimizer.step#"
MODULE_RANGE = "gpudoctor::module#"
"""The recorder's range around a module's call; the number that follows tells which."""

_REGION = "Torch-Compiled Region: "

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
    by_hand: bool = False,
) -> Ops:
    """The operators of one trace.

    Args:
        trace: the decoded trace; its `ops` are used up.
        windows: the profiled steps, in order.
        offset_ns: what to add to the trace's times to get the recording's.
        observation: light or detail.
        names: line marks and user files.
        first_id: op id of the first row.
        outside: keep operators outside the windows, with no step; they are left out otherwise.
        by_hand: steps end at backward calls, because parameters are updated by hand.
    """
    texts = trace.texts("name")
    found = callers(trace.table("python"), texts, names)
    calls, marks, modules = _calls(trace, found, texts)
    texts = trace.texts("name")  # it has new ones: those of the pseudo-operators
    _close_ranges(calls, texts, windows)
    tree = nest(calls["start_ns"], calls["dur_ns"], calls["thread"])
    calls = calls.taken(tree.order)
    step_row = windows_of(tree.start_ns, windows)
    made = _Builder(trace, texts, windows, names, tree, calls, step_row)
    called = who_called(found, tree.thread, tree.start_ns, tree.end_ns)
    columns = made.columns(observation, found, called, marks, modules, by_hand)
    external = calls["external"]
    keep = np.ones(len(step_row), bool) if outside else step_row >= 0
    del calls, called, found, made, step_row  # what comes now makes copies: on a large trace each of these counts
    return _in_order(columns, tree, external, keep, offset_ns, first_id)


def windows_of(start_ns: Ints, windows: Sequence[Window]) -> Ints:
    """Number of the window that each time lies in, -1 for none."""
    begins = np.array([window.start_ns for window in windows], np.int64)
    ends = np.array([window.end_ns for window in windows], np.int64)
    at = np.searchsorted(begins, start_ns, side="right") - 1
    if len(windows):
        at = np.where((at >= 0) & (start_ns < ends[at]), at, -1)
    return at


def _close_ranges(calls: Table, texts: Sequence[str], windows: Sequence[Window]) -> None:
    """Ends optimizers' ranges with their step: a hook inside of one ends the step and, with a burst's last, the
    profiler, which leaves the range open until it has stopped. Calls that began in the step stay inside."""
    codes = [code for code in np.unique(calls["name"]).tolist() if texts[code].startswith(OPTIMIZER_RANGE)]
    if not codes or not windows:
        return
    start, dur = calls["start_ns"], calls["dur_ns"].copy()
    at = windows_of(start, windows)
    rows = np.flatnonzero(np.isin(calls["name"], codes) & (at >= 0))
    for row in rows[np.argsort(-start[rows], kind="stable")].tolist():  # inner ones first
        end = windows[at[row]].end_ns
        if start[row] + dur[row] <= end:
            continue
        inside = (calls["thread"] == calls["thread"][row]) & (start > start[row]) & (start < end)
        last = int((start[inside] + dur[inside]).max(initial=end))
        dur[row] = min(int(dur[row]), last - int(start[row]))
    calls.columns["dur_ns"] = dur


def _calls(trace: Trace, found: Callers, texts: Sequence[str]) -> tuple[Table, Table, Table]:
    """Operators and annotations (with the pseudo-operators that read a tensor), line marks, and ranges of modules."""
    ops = trace.tables.pop("ops", None) or Table({**_NO_OPS.columns})
    codes = np.unique(ops["name"])
    dropped = [c for c in codes if texts[c].startswith((LINE_MARK, STEP_MARK, MODULE_RANGE))]
    marks = ops.take(np.isin(ops["name"], [c for c in dropped if texts[c].startswith(LINE_MARK)]))
    modules = ops.take(np.isin(ops["name"], [c for c in dropped if texts[c].startswith(MODULE_RANGE)]))
    calls = ops.taken(np.flatnonzero(~np.isin(ops["name"], dropped))) if dropped else ops
    if not found.reads:
        return calls, marks, modules
    rows = np.array([row for row, _ in found.reads], np.int64)
    python = trace.table("python").take(rows)
    added = {
        name: np.full(
            len(rows), MISSING if column.dtype == np.int64 else 0 if column.dtype == bool else -1, column.dtype
        )
        for name, column in calls.columns.items()
    }
    added |= {name: python[name] for name in ("start_ns", "dur_ns", "thread")}
    added["name"] = np.array([trace.columns.names[name] for _, name in found.reads], np.int32)
    both = Table({name: np.concatenate((column, added[name])) for name, column in calls.columns.items()})
    return both, marks, modules


_INT_COLUMNS = ("start_ns", "dur_ns", "external", "sequence")
_CODE_COLUMNS = ("name", "thread", "category", "dims", "types", "concrete", "call_stack")
_NO_OPS = Table(
    {name: np.empty(0, np.int64) for name in _INT_COLUMNS}
    | {name: np.empty(0, np.int32) for name in _CODE_COLUMNS}
    | {"backward": np.empty(0, bool)}
)


@dataclass(slots=True)
class _Builder:
    """Derives the columns, in the order of the tree."""

    trace: Trace
    texts: list[str]
    windows: Sequence[Window]
    names: Names
    tree: Tree
    calls: Table
    window: Ints

    def columns(
        self, observation: str, found: Callers, called: Called, marks: Table, modules: Table, by_hand: bool
    ) -> Columns:
        count = len(self.window)
        steps = np.array([window.step for window in self.windows] or [0], np.int64)
        columns: Columns = {
            "name": Coded(self.calls["name"], self.texts),
            "start_ns": self.tree.start_ns,
            "dur_ns": self.tree.end_ns - self.tree.start_ns,
            "self_ns": self._self_ns(),
            "thread": self.trace.thread_numbers()[self.tree.thread],
            "step": np.where(self.window >= 0, steps[self.window], MISSING),
            "observation": Coded(np.zeros(count, np.int8), (observation,)),
            "depth": self.tree.depth.astype(np.int64),
            "op_class": self._by_name(op_classes.op_class),
            "region": self._region(),
            "dtypes": self._from_json("types", _dtypes),
            "shapes": self._from_json("dims", _compact),
            "arguments": self._from_json("concrete", _compact),
            "module_path": self._module_path(modules),
        }
        recorded = self.calls["sequence"] >= 0
        phase = phases.Phases(
            self.tree, self.calls["name"], self.texts, self.window, recorded, self.calls["backward"]
        ).of_all(by_hand)
        columns["phase"] = Coded(phase, phases.NAMES)
        columns["host_read"] = self._host_read()
        columns |= _who(found, called, count)
        mark = self._mark(marks)
        columns |= self._places(found, called, mark)
        if (self.calls["call_stack"] >= 0).any():
            columns |= from_call_stacks(self.trace, self.calls, self.names)
        self._mark_headers(columns)
        self._follow_forward(columns, phase == phases.BACKWARD, mark)
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

    def _places(self, found: Callers, called: Called, mark: Codes) -> Columns:
        """The user's line: where a mark says so the very line of the call, else where the user's function begins."""
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
        precision = np.where(exact, 0, np.where(framed, 1, -1)).astype(np.int8)
        return {
            "file": coded(rows, [line[0] for line in lines] + [place.user for place in places]),
            "line": np.where(rows >= 0, line[rows], MISSING),
            "function": coded(rows, [line[2] for line in lines] + [place.scope for place in places]),
            "precision": Coded(precision, PRECISIONS),
        }

    def _mark_headers(self, columns: Columns) -> None:
        """Compiled code knows its function, not its lines: a line that is a `def` says no more than that."""
        region, file, function = (columns[name] for name in ("region", "file", "function"))
        line, precision = columns["line"], columns["precision"]
        assert isinstance(region, Coded)
        assert isinstance(file, Coded)
        assert isinstance(function, Coded)
        assert isinstance(precision, Coded)
        assert isinstance(line, np.ndarray)
        rows = np.flatnonzero((region.codes >= 0) & (file.codes >= 0) & (function.codes >= 0))
        if not len(rows):
            return
        places = np.stack((file.codes[rows], line[rows], function.codes[rows]))
        unique, at = np.unique(places, axis=1, return_inverse=True)
        header = np.array(
            [
                self.names.defs.is_header(file.values[f], number, function.values[name].rpartition(".")[2])
                for f, number, name in unique.T.tolist()
            ]
            or [False],
            bool,
        )
        precision.codes[rows[header[at.reshape(-1)]]] = PRECISIONS.index("def")

    def _module_path(self, modules: Table) -> Coded:
        """Path of the module whose call encloses the operator: that of the innermost range that has one."""
        if not len(modules):
            return Coded(np.full(len(self.window), -1, np.int8), ())
        tree = nest(modules["start_ns"], modules["dur_ns"], modules["thread"])
        number = [int(text) if text.isdigit() else -1 for text in self._numbers(modules, tree)]
        paths = self.names.modules
        known = [n if 0 <= n < len(paths) and paths[n] is not None else -1 for n in number]
        nearest = tree.inherit(np.array(known, np.int32))
        at = tree.enclosing(self.tree.thread, self.tree.start_ns, self.tree.end_ns)
        return coded(np.where(at >= 0, nearest[at], -1), paths)

    def _numbers(self, modules: Table, tree: Tree) -> list[str]:
        return [self.texts[code].removeprefix(MODULE_RANGE) for code in modules["name"][tree.order].tolist()]

    # -- forward and backward ------------------------------------------------------------------------------------

    def _follow_forward(self, columns: Columns, backward: Mask, mark: Codes) -> None:
        """Gives backward operators the place of their forward operator."""
        owner = columns["owner"]
        assert isinstance(owner, Coded)
        users = np.array([text == "user" for text in owner.values] or [False], bool)[owner.codes] & (owner.codes >= 0)
        found = forward_links.links(
            self.tree, self.calls["name"], self.texts, self.calls["sequence"], self.window, backward, mark, users
        )
        columns |= {"sequence": found.sequence, "forward_row": found.forward}
        for name in ("file", "line", "precision", "function", "module"):
            column = columns[name]
            columns[name] = column.take(found.place) if isinstance(column, Coded) else column[found.place]
        path = columns["module_path"]
        assert isinstance(path, Coded)
        columns["module_path"] = Coded(np.where(path.codes >= 0, path.codes, path.codes[found.place]), path.values)


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
        "owner": coded(rows(called.owner), [place.owner for place in places]),
        "caller_file": coded(function, [place.file for place in places]),
        "caller_function": coded(function, [place.function for place in places]),
        "module": coded(rows(called.module), [place.module for place in places]),
    }


def _dtypes(text: bytes) -> str:
    try:
        return ",".join(map(str, msgspec.json.decode(text, type=list[Any])))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _compact(text: bytes) -> str:
    try:
        return json.dumps(msgspec.json.decode(text), separators=(",", ":"))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _in_order(columns: Columns, tree: Tree, external: Ints, keep: Mask, offset_ns: int, first_id: int) -> Ops:
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
    return Ops(made, external[picked], tree, number)


def _ids(ops: Ops) -> Ints:
    ids = ops.columns["op"]
    assert isinstance(ids, np.ndarray)
    return ids
