"""The tables of what stays alive: what the last count that saw growth found, or why nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.ingest import growth
from gpudoctor.ingest.watch import WatchLog

SOURCES = {"train.py": "kept = []\nfor x in y:\n    kept.append(x)\n"}
FOUND: dict[str, Any] = {
    **{"scope": "global", "name": "kept", "owner": None, "file": "train.py", "function": None, "container": "list"},
    **{"bounded": False, "from_step": 4, "to_step": 13, "made_in": 10, "tensors": 10, "tensor_bytes": 40_000},
    **{"used_bytes": 40_000, "nodes": 20, "node_bytes": 16_000, "saved_bytes": 100_000, "late_bytes": 0, "gpu": False},
}


def counts(*found: list[dict[str, Any]]) -> dict[str, Any]:
    numbered = [{"step": 4 + 3 * number, "found": rows} for number, rows in enumerate(found)]
    return {"failed": None, "counts": numbered, "free_bytes": 10**9}


def test_what_grew_to_the_last_is_lasting() -> None:
    (row,) = growth.rows(counts([], [], [FOUND], [FOUND | {"to_step": 23, "saved_bytes": 200_000}]), SOURCES)
    assert (row["file"], row["line"], row["holder"], row["kind"]) == ("train.py", 3, "kept", "graph")
    assert (row["lasting"], row["to_step"], row["saved_bytes_per_step"]) == (True, 23, 10_000)
    assert row["bytes_per_step"] == (200_000 + 40_000 + 16_000) / 20
    assert (row["tensors_per_step"], row["free_bytes"]) == (0.5, 10**9)


def test_what_no_longer_grew_is_not() -> None:
    (row,) = growth.rows(counts([], [], [FOUND], []), SOURCES)
    assert not row["lasting"]


def test_without_a_name_there_is_no_line() -> None:
    nameless = {
        name: value for name, value in FOUND.items() if name not in ("scope", "name", "owner", "file", "function")
    }
    (row,) = growth.rows(counts([], [], [nameless]), SOURCES)
    assert (row["holder"], row["line"], row["emptied"]) == (None, None, False)


def test_batches_that_get_longer_are_none_where_nothing_is_added_up() -> None:
    longer = FOUND | {"tensors": 0, "nodes": 0, "node_bytes": 0, "saved_bytes": 0, "container": None}
    assert growth.rows(counts([], [], [longer | {"name": "x"}]), SOURCES) == []
    (row,) = growth.rows(counts([], [], [longer]), {"train.py": "for x in y:\n    kept = torch.cat([kept, x])\n"})
    assert (row["line"], row["kind"], row["bytes_per_step"]) == (2, "tensors", 4000)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "killed"),
        (counts([], []), "too few steps"),
        ({"failed": "ValueError()", "counts": []}, "could not count"),
    ],
)
def test_why_nothing_is_known(raw: dict[str, Any] | None, reason: str) -> None:
    tables: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    growth.add(raw, WatchLog(), [], SOURCES, tables, missing)
    assert tables == {}
    assert reason in missing["live_growth"]
    assert "memory a process has" in missing["resident_memory"]


def test_a_reading_belongs_to_the_step_that_had_just_ended() -> None:
    steps = [{"step": 0, "start_ns": 100}, {"step": 1, "start_ns": 200}]
    rows = growth.resident(WatchLog(resident=[(50, 1), (200, 2), (300, 3)]), steps)
    assert [(row["step"], row["resident_bytes"]) for row in rows] == [(None, 1), (0, 2), (1, 3)]
