from __future__ import annotations

from typing import Any

from gpudoctor.ingest.loop_work import tables
from gpudoctor.ingest.watch import WatchLog

STEPS: list[dict[str, Any]] = [{"step": 0, "start_ns": 0, "dur_ns": 100}, {"step": 1, "start_ns": 150, "dur_ns": 100}]
KINDS: list[dict[str, Any]] = [
    {"number": 0, "kind": "print", "name": "print", "stack": [["train.py", 7, "main"], ["train.py", 20, None]]},
    {"number": 1, "kind": "gc", "generation": 2, "explicit": True, "file": "train.py", "line": 9, "function": None},
]


def test_work_belongs_to_the_step_that_it_began_in() -> None:
    made = tables(WatchLog(kinds=KINDS, work=[[10, 12, 0, 1, 2], [20, 24, 0, 2, 3], [160, 170, 0, 1, 10]]), STEPS)
    assert [(row["step"], row["line"], row["calls"], row["dur_ns"]) for row in made["host_calls"]] == [
        (0, 7, 3, 5),
        (1, 7, 1, 10),
    ]


def test_work_between_the_steps_and_of_unknown_kind_is_left_out() -> None:
    made = tables(WatchLog(kinds=KINDS, work=[[120, 130, 0, 1, 10], [260, 270, 0, 1, 10], [10, 11, 5, 1, 1]]), STEPS)
    assert made == {"host_calls": [], "gc_pauses": []}


def test_collections_have_a_table_of_their_own() -> None:
    (row,) = tables(WatchLog(kinds=KINDS, work=[[10, 60, 1, 1, 50]]), STEPS)["gc_pauses"]
    assert (row["generation"], row["explicit"], row["line"], row["dur_ns"]) == (2, True, 9, 50)
