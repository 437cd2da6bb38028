"""What follows from the compile log: causes of recompilations, late compiles, the chain of frames, idle at breaks."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.analysis import assignments, break_idle, compile_chain, late_compiles, recompile_causes
from gpudoctor.profile import Profile, empty, frame
from tests.analysis.timelines import Timeline

Row = dict[str, Any]


def rows(table: str, *given: Row) -> list[Row]:
    return Profile({table: frame(table, given)}).rows(table)


def compilation(compile_id: str, function: str = "forward", **more: Any) -> Row:
    number, _, attempt = compile_id.partition("/")
    made = {"compile_id": compile_id, "frame": int(number), "attempt": int(attempt), "function": function}
    return {**made, "file": "train.py", "line": 16, "graph_ops": 4, "guards": 9, "dur_ns": 100, "resumes": False} | more


# -- causes ---------------------------------------------------------------------------------------------------------


def recompile(attempt: int, **more: Any) -> Row:
    made = {"compile_id": f"0/{attempt}", "frame": 0, "function": "forward", "step": attempt, "dur_ns": 10}
    made |= {"cause": "value", "changed": "number", "held_in": "attribute", "source": "self.calls"}
    return made | {"expected": str(attempt - 1), "caller_file": "train.py", "caller_line": 30} | more


def causes(again: list[Row], refused: bool = False, schedulers: list[Row] | None = None, **more: Any) -> list[Row]:
    last = {"fail_reason": "Dynamo recompile limit exceeded", "limit_hit": True, "graph_ops": None} if refused else {}
    compilations = [compilation("0/0"), *(compilation(row["compile_id"], step=row["step"]) for row in again)]
    compilations[-1] |= last
    return recompile_causes.rows(
        rows("recompiles", *again), rows("compilations", *compilations), rows("schedulers", *schedulers or []), **more
    )


def test_a_value_read_by_the_user_is_placed_where_it_is_read_and_the_assignment_is_named() -> None:
    source = "class Net:\n def __init__(self):\n  self.calls = 0\n def forward(self, x):\n  self.calls += 1\n"
    again = [recompile(n, used_file="train.py", used_line=5) for n in (1, 2, 3)]
    (row,) = causes(again, refused=True, sources={"train.py": source}, steps=10)
    assert (row["file"], row["line"], row["role"]) == ("train.py", 5, "reads it")
    assert (row["setter"], row["setter_line"]) == (".calls", 5)
    assert (row["values"], row["value_count"], row["recompiles"], row["dur_ns"]) == ("0, 1, 2", 3, 2, 30)
    assert (row["limit_hit"], row["limit_step"], row["steps_seen"], row["steps_after"]) == (True, 3, 10, 6)


@pytest.mark.parametrize(
    ("source", "cycles", "line"),
    [
        ("self.param_groups[0]['betas'][0]", True, 10),
        ("self.param_groups[0]['betas'][0]", False, 11),
        ("self.param_groups[0]['lr']", False, 10),
    ],
)
def test_an_optimizers_value_is_changed_by_a_scheduler_that_can_change_it(source: str, cycles: bool, line: int) -> None:
    call = {"compile_file": "train.py", "compile_line": 11}
    again = [recompile(n, held_in="optimizer", source=source, **call) for n in (1, 2)]
    scheduler = {"file": "train.py", "line": 10, "kind": "OneCycleLR", "cycles_momentum": cycles}
    (row,) = causes(again, schedulers=[scheduler], sources={})
    assert row["line"] == line


def test_sizes_point_to_the_loader_the_static_compile_or_the_caller() -> None:
    size = {"cause": "shape", "changed": "size", "source": "x", "dimension": 0, "expected": "32", "actual": "8"}
    loader = {"ragged_batch": True, "loader_file": "data.py", "loader_line": 3}
    static = {"compile_dynamic": "False", "compile_file": "train.py", "compile_line": 11}
    for more, place in (
        (loader, ("data.py", 3, "DataLoader")),
        (static, ("train.py", 11, "torch.compile")),
        ({}, ("train.py", 30, "caller")),
    ):
        (row,) = causes([recompile(1, **size, **more)], sources={})
        assert (row["file"], row["line"], row["role"]) == place
        assert row["values"] == "32, 8"


def test_long_floats_are_shortened_and_other_values_are_left() -> None:
    again = [recompile(1, expected="0.9377874787177128"), recompile(2, expected="'a mode'")]
    (row,) = causes(again, sources={})
    assert row["values"] == "0.9378, 'a mode'"


def test_assignments_outside_of_constructors() -> None:
    text = (
        "class A:\n    def __init__(self):\n        self.n = 0\n"
        "    def f(self):\n        self.n, self.m = 1, 2\n        self.n += 1\n\nmodel.n: int = 3\n"
    )
    assert assignments.lines({"a.py": text, "b.py": "def broken(:"}, "n") == [("a.py", 5), ("a.py", 6), ("a.py", 8)]
    assert assignments.lines({"a.py": text}, "m") == [("a.py", 5)]


# -- late compiles --------------------------------------------------------------------------------------------------

STEPS = [{"step": number, "warmup": number < 2} for number in range(10)]
CALL = {"file": "train.py", "line": 8, "target_file": "train.py", "target_function": "forward"}


def late(compilations: list[Row], calls: list[Row] | None = None, explained: list[Row] | None = None) -> list[Row]:
    return late_compiles.rows(
        rows("compilations", *compilations),
        rows("compile_calls", *calls or []),
        rows("steps", *STEPS),
        rows("recompile_causes", *explained or []),
    )


def test_new_code_in_step_after_step() -> None:
    compilations = [compilation(f"{n}/0", step=n, backward_ns=1) for n in range(10)]
    (row,) = late(compilations, [CALL | {"step": n} for n in range(10)])
    assert (row["compilations"], row["steps"], row["steps_seen"], row["dur_ns"]) == (8, 8, 8, 808)
    assert (row["reset"], row["in_loop"], row["calls"], row["compile_line"]) == (False, True, 10, 8)


def test_thrown_away_code_has_the_same_number_again() -> None:
    (row,) = late([compilation("0/0", step=n) for n in (3, 6, 9)], [CALL])
    assert (row["reset"], row["in_loop"]) == (True, False)


def test_what_guards_explain_and_what_comes_once_is_no_late_compile() -> None:
    again = [compilation(f"0/{n}", step=n) for n in range(10)]
    assert late(again, explained=[{"frame": 0, "recompiles": 9}]) == []
    assert late([compilation("0/0", step=0), compilation("1/0", "evaluate", step=5)]) == []


# -- the chain ------------------------------------------------------------------------------------------------------

RESUMED = "torch_dynamo_resume_in_forward_at_20"
BREAK = {"compile_id": "0/0", "frame": 0, "file": "train.py", "line": 20, "reason": "item", "skipped": False}


def test_a_function_and_its_continuations_form_a_chain() -> None:
    compilations = rows(
        "compilations",
        compilation("0/0"),
        compilation("1/0", RESUMED, line=20, graph_ops=2),
        compilation("1/1", RESUMED, line=20, graph_ops=3),
        compilation("1/2", RESUMED, line=20, graph_ops=None, fail_reason="limit", limit_hit=True),
        compilation("2/0", "other", line=40),
    )
    chain = compile_chain.graph(compilations, rows("graph_breaks", BREAK, BREAK))
    assert [(a, b, edge["line"], edge["count"]) for a, b, edge in chain.edges(data=True)] == [(0, 1, 20, 2)]
    assert compile_chain.functions(chain) == [[0, 1], [2]]
    resumed = chain.nodes[1]
    assert (resumed["root"], resumed["resumes_at"], resumed["versions"], resumed["ops"]) == ("forward", 20, 2, 3)
    assert resumed["limit"]


def test_a_break_without_a_continuation_stays_with_its_frame() -> None:
    chain = compile_chain.graph(rows("compilations", compilation("0/0", graph_ops=None)), rows("graph_breaks", BREAK))
    assert list(chain.edges()) == [(0, 0)]


# -- idle at a break ------------------------------------------------------------------------------------------------


def test_the_device_idles_from_its_last_work_to_the_next_regions_first_kernel() -> None:
    timeline = Timeline(1000)
    first = timeline.op("aten::mm", 0, 20, region="0/0", step=0, phase="forward")
    timeline.launch(5, 20, 100, op=first)
    second = timeline.op("aten::mm", 300, 320, region="1/0", step=0, phase="forward")
    timeline.launch(305, 320, 400, op=second)
    tables = timeline.derive()
    compilations = rows("compilations", compilation("0/0"), compilation("1/0", RESUMED, line=20))
    breaks = frame("graph_breaks", [BREAK, BREAK | {"line": 99}])
    idle = break_idle.per_step(
        compilations, Profile({"graph_breaks": breaks}).rows("graph_breaks"), frame("ops", timeline.ops), tables["gaps"]
    )
    assert idle == {(0, "train.py", 20): 220_000}
    filled = break_idle.with_idle(breaks, idle)["idle_ns"]
    assert filled[0] == 220_000
    assert filled.isna().tolist() == [False, True]


def test_no_break_no_idle() -> None:
    assert len(break_idle.with_idle(empty("graph_breaks"), {})) == 0
