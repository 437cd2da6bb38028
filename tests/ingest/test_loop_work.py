from __future__ import annotations

from typing import Any

from gpudoctor.ingest import explicit_calls
from gpudoctor.ingest.loop_work import tables
from gpudoctor.ingest.watch import ExplicitCall, WatchLog

STEPS: list[dict[str, Any]] = [{"step": 0, "start_ns": 0, "dur_ns": 100}, {"step": 1, "start_ns": 150, "dur_ns": 100}]
KINDS: list[dict[str, Any]] = [
    {"number": 0, "kind": "print", "name": "print", "stack": [["train.py", 7, "main"], ["train.py", 20, None]]},
    {"number": 1, "kind": "gc", "generation": 2, "explicit": True, "file": "train.py", "line": 9, "function": None},
]


def test_work_belongs_to_the_step_that_it_began_in() -> None:
    made = tables(WatchLog(kinds=KINDS, work=[[10, 12, 0, 1, 2], [20, 24, 0, 2, 3], [160, 170, 0, 1, 10]]), STEPS, {})
    assert [(row["step"], row["line"], row["calls"], row["dur_ns"]) for row in made["host_calls"]] == [
        (0, 7, 3, 5),
        (1, 7, 1, 10),
    ]


def test_work_between_the_steps_and_of_unknown_kind_is_left_out() -> None:
    made = tables(
        WatchLog(kinds=KINDS, work=[[120, 130, 0, 1, 10], [260, 270, 0, 1, 10], [10, 11, 5, 1, 1]]), STEPS, {}
    )
    assert made == {"host_calls": [], "gc_pauses": []}


def test_collections_have_a_table_of_their_own() -> None:
    (row,) = tables(WatchLog(kinds=KINDS, work=[[10, 60, 1, 1, 50]]), STEPS, {})["gc_pauses"]
    assert (row["generation"], row["explicit"], row["line"], row["dur_ns"]) == (2, True, 9, 50)


def test_a_collection_is_by_hand_or_a_pause_never_both() -> None:
    sources = {"train.py": "def step():\n    gc.collect()\n    objects = [{} for _ in range(9)]\n"}
    found = [ExplicitCall(10, 30, "gc.collect", "train.py", line, "step", True, 1, 2) for line in (2, 3)]
    log = WatchLog(kinds=KINDS, explicit_calls=[*found, ExplicitCall(40, 50, "torch.cuda.synchronize", "train.py", 3)])
    pauses = [(row["line"], row["explicit"], row["generation"]) for row in tables(log, STEPS, sources)["gc_pauses"]]
    assert pauses == [(2, True, 2), (3, False, 2)]
    by_hand = explicit_calls.rows(log.explicit_calls, STEPS, sources)
    assert [row["line"] for row in by_hand if row["call_name"] == "gc.collect"] == [2]
