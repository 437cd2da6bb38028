"""Calls by hand: which step they fall in, and which of them stand beside a clock."""

from __future__ import annotations

from gpudoctor.ingest import explicit_calls
from gpudoctor.ingest.watch import ExplicitCall

TIMED = """\
start = time.perf_counter()
loss = step(batch)
if cuda:
    torch.cuda.synchronize()
print(time.perf_counter() - start)
torch.cuda.synchronize()
other()
torch.cuda.synchronize()
for x in data:
    gc.collect()
    begun = time.time()
"""


def test_lines_beside_a_clock_are_timing_code() -> None:
    lines = explicit_calls.timed_lines(TIMED)
    assert {4, 6, 10} <= lines
    assert 8 not in lines
    assert explicit_calls.timed_lines("def f(:") == frozenset()


def test_a_call_belongs_to_the_step_that_was_running() -> None:
    steps = [{"step": 0, "start_ns": 100, "dur_ns": 50}, {"step": 1, "start_ns": 160, "dur_ns": 40}]
    calls = [ExplicitCall(at, at + 5, "torch.cuda.synchronize", "a.py", 8) for at in (20, 100, 155, 199, 300)]
    rows = explicit_calls.rows(calls, steps, {"a.py": TIMED})
    assert [row["step"] for row in rows] == [None, 0, None, 1, None]
    assert [row["timed"] for row in rows] == [False] * 5
    assert {row["dur_ns"] for row in rows} == {5}


def test_a_collection_on_a_line_that_asks_for_none_ran_by_itself() -> None:
    calls = [ExplicitCall(0, 9, "gc.collect", "a.py", line) for line in (2, 10)]
    assert [row["line"] for row in explicit_calls.rows(calls, [], {"a.py": TIMED})] == [10]
    assert len(explicit_calls.rows(calls, [], {})) == 2  # without the source nobody knows better
